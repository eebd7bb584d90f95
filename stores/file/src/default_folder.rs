//! Where `file:` without a path is: the same folder for all processes of one user on one host, whatever their environment.
//!
//! | user | folder |
//! | --- | --- |
//! | root | `/var/lib/leasehold` |
//! | a system user (1 to 999), one of systemd's dynamic users, `nobody` | `/dev/shm/leasehold-UID` |
//! | any other | `HOME/.local/state/leasehold/host-…`, with the home of the user database |
//!
//! Nothing is chosen by what happens to be there or to be writable at the moment: two processes could find different things, and
//! both would hold. A folder that can't be used is an error. The reasons are in decision 20.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use leasehold_core::name::stable_hash;
use leasehold_core::{Error, Kind, Result};

/// Only root can create it, it is there before any user logs in, and it outlives the boot, so tokens go on from where they were.
const OF_ROOT: &str = "/var/lib/leasehold";

/// The only place that every user can write to and that services with a private `/tmp` share with the rest of the host. logind
/// removes what a user has there when that user logs out (`RemoveIPC`), so it is for those who don't log in.
const OF_SERVICES: &str = "/dev/shm";

/// The highest number of a system user. logind spares these.
const LAST_SYSTEM_USER: u32 = 999;

/// The users that systemd makes up for a service (`DynamicUser=`).
const DYNAMIC_USERS: std::ops::RangeInclusive<u32> = 61_184..=65_519;

/// The user who owns nothing.
const NOBODY: u32 = 65_534;

/// What stands in the user database where there is no home.
const NO_HOME: [&str; 5] = ["", "/", "/dev/null", "/nonexistent", "/var/empty"];

/// The folder of `file:` without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DefaultFolder {
    /// Where it is.
    pub path: PathBuf,
    /// Which processes of the same user have another one all the same, in words.
    pub split_by: &'static str,
}

/// The folder of `file:` without a path, for the user that this process acts as. It depends on the host and the user alone: see
/// [the crate](crate#the-default-folder). An error says why this user has none. Nothing is created.
pub fn default_folder() -> Result<DefaultFolder> {
    let machine = || machine_id(std::fs::read_to_string(MACHINE_ID));
    folder_of(rustix::process::geteuid().as_raw(), home_of, machine)
}

/// Whether logind removes what this user has in `/dev/shm` when the user logs out, if it is set up to.
pub(crate) fn logs_out(user: u32) -> bool {
    user > LAST_SYSTEM_USER
}

fn folder_of(
    user: u32,
    home: impl FnOnce(u32) -> Result<Option<PathBuf>>,
    machine: impl FnOnce() -> Result<String>,
) -> Result<DefaultFolder> {
    if user == 0 {
        let split_by = "a container, or a service with a /var/lib of its own, has another one";
        return Ok(DefaultFolder { path: PathBuf::from(OF_ROOT), split_by });
    }
    if user <= LAST_SYSTEM_USER || user == NOBODY || DYNAMIC_USERS.contains(&user) {
        let path = Path::new(OF_SERVICES).join(format!("leasehold-{user}"));
        let split_by = "a container, or a service with a /dev/shm of its own, has another one; a service of this user with \
                        RemoveIPC=yes, which DynamicUser= implies, deletes it when it stops, also while other processes use it";
        return Ok(DefaultFolder { path, split_by });
    }
    let home =
        home(user)?.filter(|home| home.is_absolute() && NO_HOME.iter().all(|none| home != Path::new(none)));
    let Some(home) = home else {
        let what = format!("there is no default folder: the user {user} has no home in the user database");
        return Err(Error::new(Kind::Invalid, what).advice(ADVICE));
    };
    let path = home.join(".local/state/leasehold").join(host(&machine()?));
    let split_by = "a container that does not see this home, and another host that does, have another one; so has what sees \
                    this home with another /etc/machine-id, and a process that runs while a home is not mounted that is mounted \
                    at login; a home on a network filesystem is refused";
    Ok(DefaultFolder { path, split_by })
}

const ADVICE: &str =
    "choose a folder with file:PATH (--store or LEASEHOLD_STORE), the same for logins, cron and services";

/// What tells the hosts apart that share a home.
const MACHINE_ID: &str = "/etc/machine-id";

/// A folder for each host, in case several share the home: their locks are not to meet. The machine's id itself is not for
/// everybody to see.
fn host(machine: &str) -> String {
    format!("host-{:016x}", stable_hash(format!("leasehold host {machine}").as_bytes()) as u64)
}

/// The id in what was read of [`MACHINE_ID`]. Without one there is no folder: a process that can't read it must not
/// get another folder than those that can.
fn machine_id(read: io::Result<String>) -> Result<String> {
    let id = read.and_then(|text| match text.trim() {
        id if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(id.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not an id of 32 hex digits")),
    });
    id.map_err(|e| {
        let what = format!("there is no default folder: {MACHINE_ID}, which tells hosts with a common home apart, can't be used");
        let advice = format!("{ADVICE}; or let every process of this user see the same {MACHINE_ID} (systemd-machine-id-setup writes one)");
        Error::new(Kind::Invalid, what).because(e).advice(advice)
    })
}

/// The home of a user, by the user database and not by `$HOME`, which `sudo`, cron and service managers set as they like.
#[allow(unsafe_code)]
fn home_of(user: u32) -> Result<Option<PathBuf>> {
    let mut buffer = vec![0; 1024];
    loop {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::zeroed();
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to live values of ours, and the length is that of the buffer. There is no safe function for
        // this: users need not be in /etc/passwd, so the C library must be asked.
        let error = unsafe {
            libc::getpwuid_r(user, entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        match error {
            0 if found.is_null() => return Ok(None),
            0 => {
                // SAFETY: the call succeeded and found an entry, so it filled `entry`, whose strings are in `buffer`.
                let home = unsafe { (*found).pw_dir };
                if home.is_null() {
                    return Ok(None);
                }
                // SAFETY: as above: it is a string that ends with a zero, in `buffer`, which is not changed meanwhile.
                let home = unsafe { CStr::from_ptr(home) };
                return Ok(Some(PathBuf::from(OsStr::from_bytes(home.to_bytes()))));
            }
            libc::ERANGE if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            libc::EINTR => {}
            // The manual's list of ways to say that there is no such user.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            other => {
                let what =
                    format!("there is no default folder: the home of the user {user} can't be looked up");
                let cause = std::io::Error::from_raw_os_error(other);
                return Err(Error::new(Kind::Unavailable, what).because(cause).advice(ADVICE));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(user: u32, home: Option<&str>) -> Result<PathBuf> {
        let id = || machine_id(Ok("0123456789abcdef0123456789abcdef\n".to_owned()));
        folder_of(user, |_| Ok(home.map(PathBuf::from)), id).map(|folder| folder.path)
    }

    #[test]
    fn the_folder_is_chosen_by_the_number_of_the_user() {
        for (user, path) in [
            (0, "/var/lib/leasehold"),
            (1, "/dev/shm/leasehold-1"),
            (999, "/dev/shm/leasehold-999"),
            (61_184, "/dev/shm/leasehold-61184"),
            (65_534, "/dev/shm/leasehold-65534"),
        ] {
            assert_eq!(folder(user, Some("/home/x")).unwrap(), Path::new(path), "{user}");
        }
        let path = folder(1000, Some("/home/ann")).unwrap();
        assert_eq!(path.parent().unwrap(), Path::new("/home/ann/.local/state/leasehold"));
        assert_eq!(folder(1000, Some("/home/ann")).unwrap(), path);
    }

    #[test]
    fn hosts_that_share_a_home_have_folders_of_their_own() {
        let other = host(&"f".repeat(32));
        assert!(other.starts_with("host-") && !other.contains("ffffffff"), "{other}");
        assert_ne!(other, host(&"e".repeat(32)));
        // The folder of an earlier version.
        assert_eq!(host("0123456789abcdef0123456789abcdef"), "host-7aacdcf2a9118b0b");
    }

    #[test]
    fn without_an_id_of_the_machine_there_is_no_folder() {
        let text = |text: &str| Ok(text.to_owned());
        let failed = |kind: io::ErrorKind| Err(io::Error::from(kind));
        for read in [
            text(""),
            text("uninitialized\n"),
            text(&"g".repeat(32)),
            text(&"0".repeat(31)),
            failed(io::ErrorKind::NotFound),
            failed(io::ErrorKind::PermissionDenied),
            failed(io::ErrorKind::InvalidData),
        ] {
            let said = format!("{read:?}");
            let home = |_| Ok(Some(PathBuf::from("/home/ann")));
            let e = folder_of(1000, home, || machine_id(read)).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid, "{said}");
            assert!(e.to_string().contains(MACHINE_ID) && e.to_string().contains("file:PATH"), "{e}");
        }
        // Those whose folder does not depend on it need none.
        for user in [0, 33] {
            folder_of(user, |_| Ok(None), || machine_id(text(""))).unwrap();
        }
    }

    #[test]
    fn a_user_without_a_home_is_told_what_to_do() {
        for home in [None, Some(""), Some("/"), Some("/nonexistent"), Some("relative"), Some("/dev/null")] {
            let e = folder(1000, home).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid);
            assert!(e.to_string().contains("1000") && e.to_string().contains("LEASEHOLD_STORE"), "{e}");
        }
        // An outage of the user database is no answer.
        let down = Error::new(Kind::Unavailable, "down");
        assert_eq!(
            folder_of(1000, |_| Err(down), || machine_id(Ok(String::new()))).unwrap_err().kind(),
            Kind::Unavailable
        );
    }

    #[test]
    fn the_home_is_the_one_of_the_user_database() {
        assert_eq!(home_of(0).unwrap(), Some(PathBuf::from("/root")));
        assert_eq!(home_of(3_999_999_999).unwrap(), None);
    }
}
