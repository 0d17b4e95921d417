#![doc = include_str!("../README.md")]
#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "code of tests may fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// An authority with files in a folder of the test.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
    /// PEM file of its own certificate.
    pub file: PathBuf,
}

/// PEM files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes an authority whose files are `<dir>/<name>…`.
    #[must_use]
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = dir.join(format!("{name}.pem"));
        fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, dir: dir.join(name), file }
    }

    /// Issues a certificate for names and addresses; the first is also its common name.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Files {
        let first = names.first().copied().unwrap_or("nobody");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, first);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::create_dir_all(&self.dir).unwrap();
        let path = |kind: &str| self.dir.join(format!("{first}.{kind}.pem"));
        let files = Files { certificate: path("certificate"), key: path("key") };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}
