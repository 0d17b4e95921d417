use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct NativeIds {
    model_path: String,
    ids: BTreeMap<String, String>,
}

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn image(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("images").join(name)).unwrap()
}

/// The ids were computed by vLLM 0.32's own hasher, after its own image loader.
#[test]
fn native_ids_are_those_of_vllm() {
    let golden = std::fs::read(fixtures().join("engine-sim/native-ids.json")).unwrap();
    let golden: NativeIds = serde_json::from_slice(&golden).unwrap();
    let differs = |(name, id): &(&String, &String)| native_id(&image(name), &golden.model_path) != **id;
    let different: Vec<_> = golden.ids.iter().filter(differs).map(|(name, _)| name).collect();
    assert!(golden.ids.len() > 100);
    assert_eq!(different, Vec::<&String>::new());
}

fn loader(items_max: usize) -> MediaLoader {
    let config = MediaConfig {
        model_path: "models/tiny-vl".to_owned(),
        items_max,
        bytes_max: 1 << 20,
        fetch_timeout: Duration::from_secs(5),
        cached_items_max: 8,
        local_path: None,
        domains: Vec::new(),
        recorded_max: 8,
    };
    MediaLoader::new(config).unwrap()
}

/// Parses a chat whose parts are these URLs, each with a `uuid` or none.
fn parts(items: &[(Option<&str>, Option<&str>)]) -> Vec<MediaPart> {
    let content: Vec<_> = items
        .iter()
        .map(|(url, uuid)| {
            let mut part = serde_json::json!({"type": "image_url", "image_url": url.map(|url| serde_json::json!({"url": url}))});
            if let Some(uuid) = uuid {
                part["uuid"] = (*uuid).into();
            }
            part
        })
        .collect();
    let body = serde_json::json!({"messages": [{"role": "user", "content": content}]}).to_string();
    prompt::ChatRequest::parse(&body.into()).unwrap().media().to_vec()
}

fn data(name: &str) -> String {
    use base64::Engine as _;
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(image(name)))
}

fn load(loader: &MediaLoader, items: &[(Option<&str>, Option<&str>)]) -> Result<Vec<Image>, ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(loader.load(&parts(items)))
}

#[test]
fn an_identity_stands_for_the_image_first_seen_under_it() {
    let loader = loader(8);
    let (plain, gray) = (data("png-plain.png"), data("jpeg-gray.jpg"));
    let first = load(&loader, &[(Some(&plain), Some("U")), (Some(&gray), None)]).unwrap();
    assert_eq!(&*first[0].identity, "U");
    assert_eq!(first[1].identity.len(), 64);
    let again = load(&loader, &[(None, Some("U")), (Some(&gray), Some("U"))]).unwrap();
    assert_eq!(again, [first[0].clone(), first[0].clone()]);
    loader.reset();
    let lost = load(&loader, &[(Some(&plain), None), (None, Some("U"))]).unwrap_err();
    assert_eq!(lost.message, "Cache miss for image at index 1 but data is not provided.");
    assert_eq!(loader.cache_counts(), (6, 2));
}

#[test]
fn faults_have_the_status_that_vllm_gives_them() {
    let loader = loader(1);
    let text = data("not-an-image.txt");
    let check = |items: &[_], status: u16, message: &str| {
        let error = load(&loader, items).unwrap_err();
        assert_eq!((error.status.as_u16(), error.message.as_str()), (status, message));
    };
    check(&[(Some(&text), None)], 400, "Failed to load image: cannot identify image file");
    check(&[(Some("data:image/png;base64,@@@@"), None)], 400, "Non-base64 digit found");
    let local = "Cannot load local files without `--allowed-local-media-path`.";
    check(&[(Some("file:///etc/passwd"), None)], 500, local);
    let two = "At most 1 image(s) may be provided in one prompt. (parameter=image)";
    check(&[(Some(&text), None), (Some(&text), None)], 400, two);
    assert_eq!(loader.counts.fetches.load(Ordering::Relaxed), 0);
}

#[test]
fn files_are_read_below_one_directory_only() {
    let temp = tempfile::tempdir().unwrap();
    let (inside, outside) = (temp.path().join("in side"), temp.path().join("out.png"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("a.png"), image("png-plain.png")).unwrap();
    std::fs::write(&outside, image("png-plain.png")).unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("link.png")).unwrap();
    let config = MediaConfig { local_path: Some(inside.clone()), ..loader(8).config };
    let loader = MediaLoader::new(config).unwrap();
    let url = |path: &str| format!("file://{}/{path}", inside.display()).replace(' ', "%20");
    let loaded = load(&loader, &[(Some(&url("a.png")), Some("U"))]).unwrap();
    assert_eq!(&*loaded[0].identity, "U");
    let receipt = loader.receipts().pop().unwrap();
    let id = prompt::media_id(&image("png-plain.png"));
    assert_eq!((receipt.by, receipt.media_id.as_str()), ("file", id.as_str()));
    for escape in ["../out.png", "link.png", "%2e%2e/out.png"] {
        let error = load(&loader, &[(Some(&url(escape)), None)]).unwrap_err();
        assert_eq!(error.status.as_u16(), 400, "{escape}: {}", error.message);
        assert!(error.message.contains("must be a subpath of"), "{}", error.message);
    }
    assert_eq!(load(&loader, &[(Some(&url("none.png")), None)]).unwrap_err().status.as_u16(), 500);
}

#[test]
fn hosts_outside_the_list_are_not_asked() {
    let config = MediaConfig { domains: vec!["good.example".to_owned()], ..loader(8).config };
    let loader = MediaLoader::new(config).unwrap();
    let error = load(&loader, &[(Some("http://bad.example/a.png"), None)]).unwrap_err();
    assert!(error.message.contains("Input URL domain: bad.example"), "{}", error.message);
    assert_eq!(loader.counts.fetches.load(Ordering::Relaxed), 0);
}
