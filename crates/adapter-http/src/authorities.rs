//! Authorities to trust beside the system's.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::listener::TlsError;

/// Authorities that somebody vouches for; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads a PEM file with at least one certificate; none adds none.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn read(file: Option<&Path>) -> Result<Self, TlsError> {
        let Some(path) = file else { return Ok(Self::default()) };
        let own = || -> PathBuf { path.to_owned() };
        let pem = std::fs::read(path).map_err(|source| TlsError::Unreadable { path: own(), source })?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(Self(found)),
            Ok(_) | Err(_) => Err(TlsError::Empty { path: own(), wanted: "certificate" }),
        }
    }

    pub(crate) fn certificates(&self) -> impl Iterator<Item = CertificateDer<'static>> {
        self.0.iter().cloned()
    }
}
