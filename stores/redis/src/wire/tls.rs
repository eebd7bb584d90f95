//! Encrypted connections: rustls, with the cryptography of ring.
//!
//! The provider is given to each configuration and not installed for the whole process: what else the program uses of rustls
//! is none of our business.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use leasehold_core::{Error, Kind, Result, Retry};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};

use crate::config::{Address, Tls};

/// The authorities that this system knows. Reading them takes milliseconds, so it is done once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// Encrypts a connection to a host, which has to prove its name.
pub(crate) async fn encrypt(
    address: &Address,
    tls: &Tls,
    host: &str,
    stream: TcpStream,
    deadline: Instant,
) -> Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::new(client(tls)?));
    let name = ServerName::try_from(host.to_owned())
        .map_err(|e| Error::new(Kind::Invalid, format!("{host:?} can't be in a certificate")).because(e))?;
    match timeout_at(deadline, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(e)) => Err(failed(address, e)),
        Err(_) => Err(Error::new(Kind::Unavailable, format!("the server {address} does not answer to TLS"))
            .advice("is this its encrypted port? without encryption, write redis://")
            .retry(Retry::Later)),
    }
}

fn client(tls: &Tls) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(Kind::Store, "TLS can't be set up").because(e))?;
    let roots = match &tls.ca {
        None => SYSTEM.clone(),
        Some(file) => Arc::new(authorities(file)?),
    };
    if roots.is_empty() {
        return Err(Error::new(Kind::Invalid, "no authority is known that could vouch for the server")
            .advice("give the authority's certificate with ?ca=PATH"));
    }
    let builder = builder.with_root_certificates(roots);
    match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|e| unusable(cert, "the certificate and its key don't work together").because(e)),
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn authorities(file: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|e| unusable(file, "has a broken certificate").because(e))?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let broken = |e| unusable(file, "can't be read as certificates in PEM").because(e);
    let all: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(broken)?.collect::<Result<_, _>>().map_err(broken)?;
    if all.is_empty() {
        return Err(unusable(file, "has no certificate in PEM"));
    }
    Ok(all)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|e| unusable(file, "can't be read as a private key in PEM").because(e))
}

fn unusable(file: &Path, what: &str) -> Error {
    Error::new(Kind::Invalid, format!("{}: {what}", file.display())).advice("check the file")
}

/// A handshake that failed: by what the certificates say, or because one side does not speak TLS.
fn failed(address: &Address, e: std::io::Error) -> Error {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (advice, retry) = match inner {
        Some(rustls::Error::InvalidCertificate(_)) => (
            "is the right authority given with ?ca=PATH, and is the host named in the certificate?",
            Retry::Never,
        ),
        Some(rustls::Error::AlertReceived(_)) => {
            ("the server wants a certificate that it knows: give ?cert=PATH&key=PATH", Retry::Never)
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            ("is this its encrypted port? without encryption, write redis://", Retry::Never)
        }
        Some(_) => ("check the TLS settings of the server", Retry::Never),
        None => ("is this its encrypted port? without encryption, write redis://", Retry::Later),
    };
    let kind = if retry == Retry::Never { Kind::Refused } else { Kind::Unavailable };
    Error::new(kind, format!("no encrypted connection to the server {address}"))
        .because(e)
        .advice(advice)
        .retry(retry)
}
