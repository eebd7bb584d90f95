//! Who a person sees behind an entry.

use std::fmt;
use std::sync::Arc;

/// What people read to know whose entry it is: host, process id and program, unless the user chose another text.
///
/// At most 200 bytes are kept, cut at a character; control characters are replaced, because labels are printed
/// on terminals of other people.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// A label of the user's choice.
    pub fn new(text: impl AsRef<str>) -> Self {
        let mut clean = String::new();
        for c in text.as_ref().chars() {
            if clean.len() + c.len_utf8() > Self::MAX_BYTES {
                break;
            }
            clean.push(if c.is_control() { '\u{fffd}' } else { c });
        }
        Label(clean.into())
    }

    /// `host:pid program` of this process.
    pub fn of_this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let program = std::env::args_os()
            .next()
            .and_then(|p| std::path::Path::new(&p).file_name().map(|n| n.to_string_lossy().into_owned()))
            .unwrap_or_else(|| "?".into());
        Self::new(format!("{host}:{} {program}", std::process::id()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_harmless_on_a_terminal() {
        assert_eq!(Label::new("a\x1b[2Jb").as_str(), "a\u{fffd}[2Jb");
        assert!(Label::new("é".repeat(500)).as_str().len() <= Label::MAX_BYTES);
        assert!(Label::of_this_process().as_str().contains(&std::process::id().to_string()));
    }
}
