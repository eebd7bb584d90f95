//! What this store can find out about itself: its filesystem, its folder, its clocks, its files.
//!
//! # Layout
//!
//! - `facts`: what was seen.
//! - `rules`: what that means for locks. Pure.

mod facts;
mod rules;

use leasehold_core::doctor::Finding;
use leasehold_core::{Result, SessionId};

use crate::folder::{Folder, Place};

/// Looks at the folder. It blocks: every lock file is read.
pub(crate) fn examine(place: &Place) -> Result<Vec<Finding>> {
    let folder = Folder::open(place, SessionId::random()?)?;
    Ok(rules::judge(&facts::collect(&folder)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use leasehold_core::doctor::Grade;
    use leasehold_core::store::{Inbox, Note, Presence, Store};
    use leasehold_core::{Kind, Label};

    use super::*;
    use crate::FileStore;
    use crate::folder::Trust;

    fn look(path: PathBuf) -> Vec<Finding> {
        examine(&Place { path, trust: Trust::Given }).unwrap()
    }

    fn find<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
        found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("{check}: {found:#?}"))
    }

    #[test]
    fn a_new_folder_of_ones_own_is_in_order() {
        let temp = tempfile::tempdir().unwrap();
        let found = look(temp.path().join("locks"));
        for check in ["permissions", "boot", "locks", "leftovers"] {
            assert_eq!(find(&found, check).grade, Grade::Good, "{found:#?}");
        }
        assert!(found.iter().all(|finding| finding.grade < Grade::Danger), "{found:#?}");
    }

    struct Nobody;

    impl Inbox for Nobody {
        fn note(&self, _: Note) {}

        fn session_gone(&self) {}
    }

    #[tokio::test]
    async fn sessions_and_remains_are_counted() {
        let temp = tempfile::tempdir().unwrap();
        let store = FileStore::at(temp.path().join("locks")).unwrap();
        let who = Presence { id: SessionId::random().unwrap(), label: Label::new("me") };
        let session = store.clone().open(who, Arc::new(Nobody)).await.unwrap();
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            temp.path().join("locks/s").join(SessionId(7).to_string()),
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        let found = store.examine().await.unwrap();
        assert!(find(&found, "locks").what.contains("1 client"), "{found:#?}");
        assert_eq!(find(&found, "leftovers").grade, Grade::Note, "{found:#?}");
        session.close().await.unwrap();
    }

    #[test]
    fn a_damaged_lock_file_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("locks");
        look(path.clone());
        std::fs::write(path.join("q/payments"), "x".repeat(4096)).unwrap();
        let found = look(path);
        let damaged = find(&found, "damage");
        assert_eq!(damaged.grade, Grade::Danger);
        assert!(damaged.what.contains("payments"), "{damaged:?}");
    }

    #[test]
    fn a_folder_that_can_not_be_opened_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let e = examine(&Place { path, trust: Trust::Given }).unwrap_err();
        assert_eq!(e.kind(), Kind::Invalid);
    }
}
