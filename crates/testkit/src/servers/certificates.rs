//! Certificates for a server with TLS, made anew for each.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use super::folder;

/// A certificate authority, and a certificate by it for the server (`localhost`, `127.0.0.1`) and for a client. All are
/// files in PEM, and good for as long as the test runs and far longer.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes them.
    pub fn make() -> Certificates {
        let made = Certificates { folder: folder::fresh("certificates") };
        made.write().expect("certificates");
        made
    }

    /// The certificate of the authority.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The certificate of the server.
    pub fn server(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The key of the server.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// The certificate of a client.
    pub fn client(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key of a client.
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self) -> Result<(), rcgen::Error> {
        let mut params = named("Leasehold test authority", &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        write(&self.ca(), &params.self_signed(&key)?.pem());
        let ca = Issuer::new(params, key);

        let mut server = named("localhost", &["localhost", "127.0.0.1"])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        write(&self.server(), &server.signed_by(&key, &ca)?.pem());
        write(&self.server_key(), &key.serialize_pem());

        let mut client = named("Leasehold test client", &[])?;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        write(&self.client(), &client.signed_by(&key, &ca)?.pem());
        write(&self.client_key(), &key.serialize_pem());
        Ok(())
    }
}

fn named(name: &str, hosts: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn write(path: &Path, pem: &str) {
    fs::write(path, pem).expect("a file for a certificate");
}
