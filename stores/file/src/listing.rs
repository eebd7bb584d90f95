//! Which names there are: the files of the folder, read once for all pages of a listing.

use leasehold_core::{Name, Result};
use rustix::fs::OFlags;

use crate::bytes::Bytes;
use crate::filename;
use crate::folder::{Folder, in_folder};
use crate::format::HEADER;

/// The names that start with a prefix, in byte order.
#[derive(Debug)]
pub(crate) struct Listing {
    prefix: String,
    /// The last name that was handed out, or the one that the listing began after.
    last: Option<Name>,
    rest: std::vec::IntoIter<Name>,
}

impl Listing {
    /// Reads the folder.
    pub(crate) fn read(folder: &Folder, prefix: String, after: Option<Name>) -> Result<Self> {
        let files =
            folder.queues.names().map_err(|e| in_folder(&folder.path.join("q"), "can't be read", e))?;
        let names =
            files.iter().filter(|file| !file.starts_with('.')).filter_map(|file| name_in(folder, file));
        let wanted = |name: &Name| {
            name.as_str().starts_with(&prefix) && after.as_ref().is_none_or(|after| name > after)
        };
        let mut names: Vec<Name> = names.filter(wanted).collect();
        names.sort_unstable();
        Ok(Listing { prefix, last: after, rest: names.into_iter() })
    }

    /// Whether the next page is the one that is asked for.
    pub(crate) fn goes_on(&self, prefix: &str, after: Option<&Name>) -> bool {
        // Without `after` it is a new listing.
        after.is_some() && self.prefix == prefix && self.last.as_ref() == after
    }

    /// The next name.
    pub(crate) fn next(&mut self) -> Option<Name> {
        let name = self.rest.next()?;
        self.last = Some(name.clone());
        Some(name)
    }
}

/// The name of the lock that a file belongs to. Every state of a file begins with it, at the same place, so it can be read
/// without a lock.
pub(crate) fn name_in(folder: &Folder, file: &str) -> Option<Name> {
    if let Some(name) = filename::name_of(file) {
        return Some(name);
    }
    let fd = folder.queues.open_file(file, OFlags::RDONLY).ok()?;
    let mut start = [0; HEADER + 2 + Name::MAX_BYTES];
    let len = rustix::io::pread(&fd, &mut start[..], 0).ok()?;
    let name = Name::new(Bytes(start.get(HEADER..len)?).text()?).ok()?;
    (filename::of(&name) == file).then_some(name)
}
