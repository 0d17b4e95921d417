//! `--print-config`: the effective configuration as a file that would give it again, but for its secrets.

use ports::masked_url;
use serde::Serialize;
use toml::{Table, Value};

/// Keys whose values are not shown, wherever they are.
const SECRETS: [&str; 6] = ["secret", "key", "nats_password", "nats_token", "nats_nkey", "etcd_password"];
const MASK: &str = "***";

/// Tables to print.
#[derive(Debug, Default)]
pub(crate) struct Printed(Table);

impl Printed {
    /// Adds a table.
    ///
    /// # Errors
    /// The configuration has a value that TOML has no form for.
    pub(crate) fn table(mut self, name: &str, config: &impl Serialize) -> anyhow::Result<Self> {
        let mut value = Value::try_from(config)?;
        mask(&mut value);
        self.0.insert(name.to_owned(), value);
        Ok(self)
    }

    /// Prints the tables.
    #[expect(clippy::print_stdout, reason = "the configuration was asked for")]
    pub(crate) fn print(&self) {
        print!("{}", self.0);
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                mask(value);
                let said = value.as_str().is_some_and(|text| !text.is_empty());
                if said && SECRETS.contains(&key.as_str()) {
                    *value = Value::from(MASK);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::String(text) => *text = masked_url(text),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Printed;

    #[test]
    fn secrets_are_masked_at_any_depth() {
        let config = json!({
            "secret": "hidden", "etcd_password": "hidden", "nats": ["nats://a:hidden@h:4222"], "port": 1,
            "keys": [{"key": "hidden", "tenant": "t"}],
        });
        let printed = Printed::default().table("cluster", &config).unwrap().0.to_string();
        assert!(!printed.contains("hidden"), "{printed}");
        for shown in ["[cluster]", "nats://***@h:4222", "port = 1", "tenant = \"t\""] {
            assert!(printed.contains(shown), "{shown} is not in {printed}");
        }
    }
}
