//! Encrypted connections, with rustls.

use std::future::Future;
use std::io;
use std::pin::Pin;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::task::{Context, Poll};

use leasehold_core::{Error, Kind, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use leasehold_sql::tls::Tls;

/// Makes encrypted streams, or refuses to where nothing was said of encryption.
#[derive(Clone)]
pub(crate) struct Connector {
    #[cfg(feature = "tls")]
    config: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Connector {
    #[cfg(feature = "tls")]
    pub(crate) fn new(tls: Option<&Tls>) -> Result<Self> {
        use tokio_rustls::rustls::crypto::ring;
        use tokio_rustls::rustls::{ClientConfig, RootCertStore};
        let Some(tls) = tls else { return Ok(Connector { config: None }) };
        let mut roots = RootCertStore::empty();
        for certificate in authorities(tls)? {
            // One that can't be used is of no use to others either; without any, the server is not believed.
            let _ = roots.add(certificate);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| Error::new(Kind::Invalid, "encryption can't be set up").because(e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Connector { config: Some(Arc::new(config)) })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(tls: Option<&Tls>) -> Result<Self> {
        match tls {
            None => Ok(Connector {}),
            Some(_) => Err(Error::new(Kind::Invalid, "this program was compiled without encryption")),
        }
    }
}

#[cfg(feature = "tls")]
fn authorities(tls: &Tls) -> Result<Vec<tokio_rustls::rustls::pki_types::CertificateDer<'static>>> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    let Some(pem) = tls.authorities()? else { return Ok(rustls_native_certs::load_native_certs().certs) };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    all.map_err(|e| {
        Error::new(Kind::Invalid, "ca= names a file with a broken certificate").because(e.to_string())
    })
}

/// What encrypts one stream.
pub(crate) struct ToHost {
    #[cfg(feature = "tls")]
    config: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
    #[cfg(feature = "tls")]
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = io::Error;

    #[cfg(feature = "tls")]
    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        Ok(ToHost { config: self.config.clone(), host: host.to_owned() })
    }

    #[cfg(not(feature = "tls"))]
    fn make_tls_connect(&mut self, _: &str) -> io::Result<ToHost> {
        Ok(ToHost {})
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ToHost {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    #[cfg(feature = "tls")]
    fn connect(self, stream: S) -> Self::Future {
        use tokio_rustls::rustls::pki_types::ServerName;
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("no encryption was asked for"))?;
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
            Ok(Carried(Box::new(stream)))
        })
    }

    #[cfg(not(feature = "tls"))]
    fn connect(self, stream: S) -> Self::Future {
        drop(stream);
        Box::pin(async { Err(io::Error::other("this program was compiled without encryption")) })
    }
}

/// An encrypted stream.
#[cfg(feature = "tls")]
pub(crate) type Encrypted<S> = Carried<Box<tokio_rustls::client::TlsStream<S>>>;
#[cfg(not(feature = "tls"))]
pub(crate) type Encrypted<S> = Carried<S>;

/// A stream as the driver takes it.
pub(crate) struct Carried<T>(pub(crate) T);

impl<T: AsyncRead + Unpin> AsyncRead for Carried<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Carried<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> TlsStream for Carried<T> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
