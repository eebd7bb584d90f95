//! The answers of `INFO` and `CONFIG GET`: names and values.

use std::collections::HashMap;

use redis::Value;

/// Names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(HashMap<String, String>);

impl Fields {
    /// Lines of `name:value`, as `INFO` and `CLUSTER INFO` have them.
    pub(crate) fn of_lines(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Fields(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Parts of `name=value`, as a replica has them in `INFO`.
    pub(crate) fn of_parts(text: &str) -> Self {
        let pairs = text.split(',').filter_map(|part| part.split_once('='));
        Fields(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Name, value, name, value, as `CONFIG GET` and `SENTINEL MASTER` answer; or a map.
    pub(crate) fn of_list(answer: &Value) -> Self {
        let pairs: Vec<(String, String)> = match answer {
            Value::Array(items) => {
                items.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
            }
            Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
            _ => Vec::new(),
        };
        Fields(pairs.into_iter().collect())
    }

    /// What is called that.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What is called that, if it is a number of the wanted kind.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A string of bytes as text.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_names_and_values_is_read() {
        let info = Fields::of_lines("# Server\r\nredis_version:7.0.15\r\nos:a:b\r\n\r\nmaxmemory:12\r\n");
        assert_eq!((info.get("redis_version"), info.get("os")), (Some("7.0.15"), Some("a:b")));
        assert_eq!((info.number::<u64>("maxmemory"), info.number::<u64>("os")), (Some(12), None));
        assert_eq!(Fields::of_parts("ip=::1,port=7000,state=online").get("ip"), Some("::1"));
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = Value::Array(vec![bulk("save"), bulk(""), bulk("timeout"), bulk("0")]);
        assert_eq!(Fields::of_list(&list).get("save"), Some(""));
        assert!(Fields::of_list(&Value::Nil).is_empty());
    }
}
