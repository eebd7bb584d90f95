//! The token below which no queue of this folder starts: the highest that any removed queue had reached.
//!
//! Time alone would do it (tokens start from the clock), if clocks never went back.

use std::io;

use leasehold_core::{Error, Kind, Result, Token};
use rustix::io::Errno;

use crate::dir::is;
use crate::folder::{Folder, in_folder};

const FILE: &str = "floor";

/// The floor.
pub(crate) fn read(folder: &Folder) -> Result<u64> {
    let path = folder.path.join(FILE);
    match read_whole(folder) {
        Ok(text) => parse(&text).ok_or_else(|| {
            Error::new(Kind::Store, format!("the file {} is damaged", path.display()))
                .advice("remove it: tokens then go on from the clock")
        }),
        Err(e) if is(&e, Errno::NOENT) => Ok(0),
        Err(e) => Err(in_folder(&path, "can't be read", e)),
    }
}

/// Reads the file, in a shared folder until it is the same twice: if that is sticky, the file is written over, not replaced.
fn read_whole(folder: &Folder) -> io::Result<Vec<u8>> {
    let mut text = folder.base.read_small(FILE)?;
    if !folder.base.sharing().is_shared() {
        return Ok(text);
    }
    for _ in 0..100 {
        let again = folder.base.read_small(FILE)?;
        if again == text {
            return Ok(text);
        }
        text = again;
    }
    // Only one who writes it for no good makes it change so often.
    Err(io::Error::new(io::ErrorKind::InvalidData, "it does not stop changing"))
}

/// Raises the floor to `last`. Only one process does this at a time: the one that sweeps.
pub(crate) fn raise(folder: &Folder, last: u64) -> Result<()> {
    // All of one length, so that one can be written over the other.
    if read(folder)? < last { folder.replace_file(FILE, format!("{last:020}\n").as_bytes()) } else { Ok(()) }
}

fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_suffix('\n')?.parse().ok().filter(|last| *last < Token::END)
}

#[cfg(test)]
mod tests {
    use leasehold_core::SessionId;

    use super::*;
    use crate::folder::{Place, Trust};

    #[test]
    fn the_floor_rises_and_never_falls() {
        let temp = tempfile::tempdir().unwrap();
        let place = Place { path: temp.path().to_owned(), trust: Trust::Given };
        let folder = Folder::open(&place, SessionId(1)).unwrap();
        assert_eq!(read(&folder).unwrap(), 0);
        for (raise_to, floor) in [(7, 7), (3, 7), (9, 9)] {
            raise(&folder, raise_to).unwrap();
            assert_eq!(read(&folder).unwrap(), floor);
        }
        for garbage in ["", "12", "x\n", "-1\n", "9223372036854775808\n"] {
            std::fs::write(temp.path().join(FILE), garbage).unwrap();
            assert_eq!(read(&folder).unwrap_err().kind(), Kind::Store, "{garbage:?}");
        }
    }
}
