//! The list under `/v1/models`.

use serde::Deserialize;

use super::ServedModel;

#[derive(Deserialize)]
struct List {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    root: Option<String>,
    parent: Option<String>,
    max_model_len: Option<u32>,
}

impl ServedModel {
    /// Reads an OpenAI model list.
    ///
    /// # Errors
    /// The text is not such a list; says why.
    pub fn parse_list(json: &[u8]) -> Result<Vec<Self>, String> {
        let list: List = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        Ok(list.data.into_iter().map(Self::from).collect())
    }
}

impl From<Entry> for ServedModel {
    fn from(entry: Entry) -> Self {
        Self { id: entry.id, root: entry.root, parent: entry.parent, context_tokens_max: entry.max_model_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_list_is_read() {
        let json = br#"{"object":"list","data":[{"id":"m","object":"model","root":"/x","parent":null,"max_model_len":4096}]}"#;
        let models = ServedModel::parse_list(json).unwrap();
        assert_eq!(models[0].id, "m");
        assert_eq!(models[0].context_tokens_max, Some(4096));
        assert!(ServedModel::parse_list(b"[]").is_err());
    }
}
