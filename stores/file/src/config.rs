//! From a URL to a folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::Store;
use leasehold_core::url::{StoreUrl, duration, percent_encode};
use leasehold_core::{Error, Kind, Result};

use crate::folder::{Place, Trust};
use crate::{FileStore, default_folder};

/// How long the file of a lock that nobody uses is kept. Creating one costs more than keeping it.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// What a store needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Where its folder is.
    pub(crate) place: Place,
    /// How long the file of an unused lock is kept.
    pub(crate) retention: Duration,
}

impl Config {
    /// A folder of the user's choice.
    pub(crate) fn at(path: PathBuf) -> Result<Self> {
        let path = std::path::absolute(&path).map_err(|e| {
            Error::new(Kind::Invalid, format!("the folder {} has no absolute path", path.display()))
                .because(e)
        })?;
        // Without a slash at its end: behind one, a link would be followed.
        let path = path.components().collect();
        Ok(Config { place: Place { path, trust: Trust::Given }, retention: RETENTION })
    }

    /// Reads `file:`, `file:PATH` or `file:///PATH`, with `?retention=1h` behind it. The path is taken as it is written: no
    /// escapes, and no `?` in it. Any path can be had by `file:?path=PATH`, with escapes.
    pub(crate) fn from_url(mut url: StoreUrl) -> Result<Self> {
        url.without_login()?;
        let retention = url.take("retention").map(|text| duration("retention", &text)).transpose()?;
        let parameter = url.take("path");
        let rest = url.rest.clone();
        url.finish(&["path", "retention"])?;
        let bad = |what: String| {
            Error::new(Kind::Invalid, what)
                .advice("write file:PATH or file:///PATH, or file: for the default")
        };
        let path = match (&parameter, rest.strip_prefix("//")) {
            (Some(path), _) if rest.is_empty() && !path.is_empty() => path,
            (Some(_), _) => return Err(bad("the file: URL has two paths, or an empty one".to_owned())),
            (None, Some(local)) if local.starts_with('/') => local,
            (None, Some(_)) => {
                return Err(bad("the file: URL names a host, and files are of this host only".to_owned()));
            }
            (None, None) => rest.as_str(),
        };
        if path.contains('\0') {
            return Err(bad("the path of the folder has a zero byte in it".to_owned()));
        }
        let mut config = match path {
            "" => {
                let path = default_folder()?.path;
                Config { place: Place { path, trust: Trust::Default }, retention: RETENTION }
            }
            path => Config::at(PathBuf::from(path))?,
        };
        config.retention = retention.unwrap_or(RETENTION);
        Ok(config)
    }

    /// The URL of this folder, whatever the current directory will be then.
    pub(crate) fn url(&self) -> String {
        let path = self.place.path.display().to_string();
        let url = format!("file:{path}");
        // What is shown is what a command inside of `leasehold run` is told, so it has to lead here.
        let reads_back =
            StoreUrl::parse(&url).is_ok_and(|url| url.rest == path && url.without_login().is_ok());
        let (url, next) =
            if reads_back { (url, '?') } else { (format!("file:?path={}", percent_encode(&path)), '&') };
        match self.retention {
            RETENTION => url,
            other => format!("{url}{next}retention={}ms", other.as_millis()),
        }
    }
}

/// Opens the store that a `file:` URL names, and creates its folder if there is none.
///
/// ```
/// use leasehold_core::url::StoreUrl;
/// # let folder = tempfile::tempdir().unwrap();
/// # let url = format!("file:{}/locks", folder.path().display());
/// let store = leasehold_file::open(StoreUrl::parse(&url)?)?;
/// assert_eq!(store.url(), url);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    Ok(FileStore::open_config(Config::from_url(url)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(url).unwrap())
    }

    #[test]
    fn paths_are_taken_as_they_are_written() {
        let path = |url| config(url).unwrap().place.path;
        assert_eq!(path("file:/a b/%20"), PathBuf::from("/a b/%20"));
        assert_eq!(path("file:///a/b"), PathBuf::from("/a/b"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(path("file:a/b"), here.join("a/b"));
        assert_eq!(path("file:./a"), here.join("a"));
        assert_eq!(path("file:/a/b/"), PathBuf::from("/a/b"));
        assert_eq!(path("file:/a/b/.").as_os_str(), "/a/b");
    }

    #[test]
    fn no_path_is_the_users_own_folder() {
        match default_folder() {
            Ok(folder) => {
                let place = Place { path: folder.path, trust: Trust::Default };
                assert_eq!(config("file:").unwrap().place, place);
            }
            Err(e) => assert_eq!(config("file:").unwrap_err().to_string(), e.to_string()),
        }
    }

    #[test]
    fn the_retention_is_kept_in_the_printed_url() {
        let config = config("file:/a?retention=2s").unwrap();
        assert_eq!(config.retention, Duration::from_secs(2));
        assert_eq!(config.url(), "file:/a?retention=2000ms");
        assert_eq!(Config::from_url(StoreUrl::parse(&config.url()).unwrap()).unwrap(), config);
    }

    #[test]
    fn the_printed_url_leads_to_the_same_folder_whatever_its_name_is() {
        for name in
            ["a", "a b", "a@b", "a:b", "a%41", "a#", "a&b=c", "a?b", "a:b@c", "a?b@c&d", "%3F ?:@#&=+é"]
        {
            for retention in [RETENTION, Duration::from_secs(2)] {
                let mut config = Config::at(PathBuf::from("/").join(name)).unwrap();
                config.retention = retention;
                assert_eq!(Config::from_url(StoreUrl::parse(&config.url()).unwrap()).unwrap(), config);
            }
        }
        let plain = Config::at(PathBuf::from("/a b/%20@c")).unwrap();
        assert_eq!(plain.url(), "file:/a b/%20@c");
        let other = Config::at(PathBuf::from("/a?b@c")).unwrap();
        assert_eq!(other.url(), "file:?path=/a%3Fb%40c");
    }

    #[test]
    fn bad_urls_are_refused_with_advice() {
        for url in [
            "file:?path=",
            "file:/a?path=/b",
            "file:?path=/a%00",
            "file://host/path",
            "file:/a?retention=soon",
            "file:/a?retain=1s",
            "file:a\0b",
            "file:u:p@h/a",
        ] {
            let e = config(url).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid, "{url}");
            assert!(e.advice_text().is_some(), "{e}");
        }
    }
}
