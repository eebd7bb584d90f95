//! The store, as the command is told of it.

use std::path::Path;

use leasehold::percent_encode;

/// What the command finds in `LEASEHOLD_STORE`: enough to reach the same store from any folder, login included. `given` is what we were
/// given ourselves, `shown` is how the client shows it, without secrets.
///
/// A password is passed on as it came. An environment can be read by its user only; whoever wants it nowhere writes `?password-file=`.
pub(crate) fn for_the_command(given: Option<&str>, shown: String, folder: &Path) -> String {
    match given {
        // Files are not secret, and shown with their whole path.
        Some(given) if !given.is_empty() && !shown.starts_with("file:") => with_whole_paths(given, folder),
        _ => shown,
    }
}

/// Parameters that name a file.
fn is_path(key: &str) -> bool {
    matches!(key, "ca" | "cert" | "key") || key.ends_with("password-file")
}

fn with_whole_paths(url: &str, folder: &Path) -> String {
    let Some((head, query)) = url.split_once('?') else { return url.to_owned() };
    let whole = |pair: &str| match pair.split_once('=') {
        Some((key, path)) if is_path(key) && !is_whole(path) => {
            format!("{key}={}/{path}", percent_encode(folder.to_string_lossy().trim_end_matches('/')))
        }
        _ => pair.to_owned(),
    };
    format!("{head}?{}", query.split('&').map(whole).collect::<Vec<_>>().join("&"))
}

fn is_whole(path: &str) -> bool {
    ["/", "%2F", "%2f"].iter().any(|slash| path.starts_with(slash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_works_from_any_folder() {
        let at = |given, shown: &str| for_the_command(given, shown.to_owned(), Path::new("/a&b"));
        assert_eq!(at(None, "file:/run/x"), "file:/run/x");
        assert_eq!(at(Some(""), "file:/run/x"), "file:/run/x");
        assert_eq!(at(Some("file:x"), "file:/run/x"), "file:/run/x");
        assert_eq!(at(Some("redis://u:p@h"), "redis://u:***@h:6379"), "redis://u:p@h");
        assert_eq!(
            at(Some("redis://h?password-file=p&db=1&ca=/c&key=k"), "redis://h"),
            "redis://h?password-file=/a%26b/p&db=1&ca=/c&key=/a%26b/k"
        );
        assert_eq!(
            for_the_command(Some("redis://h?ca=%20x&key=%2Fk"), String::new(), Path::new("/a@b%#? c")),
            "redis://h?ca=/a%40b%25%23%3F%20c/%20x&key=%2Fk"
        );
    }
}
