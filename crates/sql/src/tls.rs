//! Encryption, as URLs say it.

use std::path::PathBuf;

use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};

/// The parameters of it.
pub const PARAMS: &[&str] = &["sslmode", "ca"];

/// Connections are encrypted, and the server's certificate is always checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// A file with those who may have signed the server's certificate; `None`: who is generally trusted.
    pub ca: Option<PathBuf>,
}

impl Tls {
    /// Takes its parameters out of a URL. `None`: nothing is encrypted.
    pub fn take(url: &mut StoreUrl) -> Result<Option<Tls>> {
        let ca = url.take("ca").map(PathBuf::from);
        match url.take("sslmode").as_deref() {
            None if ca.is_none() => Ok(None),
            None | Some("require" | "verify-full") => Ok(Some(Tls { ca })),
            Some("disable") if ca.is_none() => Ok(None),
            Some("disable") => Err(Error::new(Kind::Invalid, "ca= is of no use without sslmode=require")),
            Some(_) => Err(Error::new(Kind::Invalid, "the sslmode of the URL is not known")
                .advice("write disable or require")),
        }
    }

    /// Its parameters as a URL has them.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let ca = self.ca.iter().map(|path| ("ca", path.display().to_string()));
        [("sslmode", "require".to_owned())].into_iter().chain(ca).collect()
    }

    /// What is in the file of authorities, if one was given. Read anew with every session, so that it may be replaced.
    pub fn authorities(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.ca else { return Ok(None) };
        let bad = |why: String| {
            let what = format!("ca={}: no certificates can be read from it", path.display());
            Error::new(Kind::Invalid, what).because(why)
        };
        let pem = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
        let marker = b"-----BEGIN CERTIFICATE-----";
        if !pem.windows(marker.len()).any(|part| part == marker) {
            return Err(bad("there is no certificate in it, in PEM".to_owned()));
        }
        Ok(Some(pem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(query: &str) -> Result<Option<Tls>> {
        Tls::take(&mut StoreUrl::parse(&format!("x:y?{query}")).unwrap())
    }

    #[test]
    fn what_is_shown_is_what_was_given() {
        let ours = Tls { ca: Some("/x.pem".into()) };
        for (query, tls) in [
            ("", None),
            ("sslmode=disable", None),
            ("sslmode=require", Some(Tls::default())),
            ("sslmode=verify-full", Some(Tls::default())),
            ("ca=/x.pem", Some(ours.clone())),
            ("sslmode=require&ca=/x.pem", Some(ours.clone())),
        ] {
            assert_eq!(take(query).unwrap(), tls, "{query}");
        }
        assert_eq!(ours.shown(), [("sslmode", "require".to_owned()), ("ca", "/x.pem".to_owned())]);
        for bad in ["sslmode=maybe", "sslmode=disable&ca=/x.pem"] {
            assert_eq!(take(bad).unwrap_err().kind(), Kind::Invalid, "{bad}");
        }
    }

    #[test]
    fn a_file_without_certificates_is_bad_input() {
        for path in ["/no/such/file", "/dev/null", "/"] {
            let tls = Tls { ca: Some(path.into()) };
            assert_eq!(tls.authorities().unwrap_err().kind(), Kind::Invalid, "{path}");
        }
        assert_eq!(Tls::default().authorities().unwrap(), None);
    }
}
