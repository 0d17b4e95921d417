//! Images behind file URLs, below one directory.

use std::path::{Path, PathBuf};

use tokio::fs;

use crate::api::ApiError;

/// Reads a file below `allowed`, links followed before that is judged, as vLLM does.
pub(super) async fn read(url: &str, allowed: Option<&Path>, bytes_max: u64) -> Result<Vec<u8>, ApiError> {
    let Some(allowed) = allowed else {
        return Err(ApiError::internal("Cannot load local files without `--allowed-local-media-path`."));
    };
    let asked = path(url).ok_or_else(|| ApiError::bad("The URL must be either a HTTP, data or file URL."))?;
    let broken = |error: std::io::Error| ApiError::internal(format!("{error}: '{}'", asked.display()));
    let allowed = fs::canonicalize(allowed).await.map_err(broken)?;
    let file = fs::canonicalize(&asked).await.map_err(broken)?;
    if file == allowed || !file.starts_with(&allowed) {
        return Err(ApiError::bad(format!(
            "The file path {} must be a subpath of `--allowed-local-media-path {}`.",
            asked.display(),
            allowed.display()
        )));
    }
    if fs::metadata(&file).await.map_err(broken)?.len() > bytes_max {
        return Err(ApiError::bad(format!("media at {url} exceeds {bytes_max} bytes")));
    }
    fs::read(&file).await.map_err(broken)
}

fn path(url: &str) -> Option<PathBuf> {
    reqwest::Url::parse(url).ok()?.to_file_path().ok()
}
