//! From a lock's name to a file's.
//!
//! A name that is safe as it is stays as it is, so that people find their lock with `ls`. Any other becomes a readable
//! beginning, `~`, and the 32 hex digits of the name's stable hash. A safe name never contains `~`, so the two can't meet.
//! Case matters, as it does on every filesystem that has FIFOs and is common on Linux; if one folds it, the name
//! that is written inside the file shows it.

use leasehold_core::Name;

/// The longest name that is used unchanged. File names may have 255 bytes.
const LONGEST: usize = 150;

/// How much of an unsafe name is kept for people to read.
const READABLE: usize = 60;

/// The file of a lock, inside the folder of queues. Never starts with a dot: such names are ours.
pub(crate) fn of(name: &Name) -> String {
    let text = name.as_str();
    let safe = text.len() <= LONGEST && !text.starts_with('.') && text.bytes().all(is_safe);
    if safe {
        return text.to_owned();
    }
    let start = text
        .chars()
        .take(READABLE)
        .map(|c| if c.is_ascii() && is_safe(c as u8) && c != '.' { c } else { '_' });
    format!("{}~{:032x}", start.collect::<String>(), name.stable_hash())
}

/// The name of a lock whose file name says it; `None` if it must be read inside the file.
pub(crate) fn name_of(file: &str) -> Option<Name> {
    let name = Name::new(file).ok()?;
    (of(&name) == file).then_some(name)
}

/// Whether a file has the form of the names that are not used unchanged.
pub(crate) fn is_hashed(file: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    file.split_once('~').is_some_and(|(start, hash)| {
        start.len() <= READABLE
            && start.bytes().all(|byte| is_safe(byte) && byte != b'.')
            && hash.len() == 32
            && hash.bytes().all(is_hex)
    })
}

fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(text: &str) -> String {
        of(&Name::new(text).unwrap())
    }

    #[test]
    fn a_safe_name_stays_and_an_unsafe_one_stays_readable() {
        assert_eq!(file_of("orders-42.nightly"), "orders-42.nightly");
        assert!(file_of("orders/{42}: nächtlich").starts_with("orders__42___n_chtlich~"));
        assert!(file_of("../../etc/passwd").starts_with("______etc_passwd~"));
        assert!(file_of(".hidden").starts_with("_hidden~"));
    }

    #[test]
    fn no_two_names_share_a_file() {
        let long = "x".repeat(LONGEST);
        let longer = "x".repeat(LONGEST + 1);
        let names = ["a", "A", "a/b", "a_b", "a:b", ".", "..", "~", "a~", "ä", "🌙", " ", &long, &longer];
        let files: std::collections::HashSet<String> = names.iter().map(|n| file_of(n)).collect();
        assert_eq!(files.len(), names.len());
        let impostor = file_of("a/b");
        assert_ne!(file_of(&impostor), impostor);
    }

    #[test]
    fn every_file_name_fits_a_directory_and_only_safe_ones_are_read_back() {
        for text in
            [".", "..", "/", "a\0b", "日本語", &"🌙".repeat(256), &"/".repeat(1024), &"a".repeat(1024)]
        {
            let file = file_of(text);
            assert!(file.len() <= 255 && !file.starts_with('.') && !file.contains(['/', '\0']), "{file}");
            assert_eq!(name_of(&file), None);
            assert!(is_hashed(&file), "{file}");
        }
        for file in ["a", "~", "a~b", "photo~1.jpg", &format!("{}~{:032X}", "a.b", u128::MAX)] {
            assert!(!is_hashed(file), "{file}");
        }
        assert_eq!(name_of("a.b").unwrap().as_str(), "a.b");
    }
}
