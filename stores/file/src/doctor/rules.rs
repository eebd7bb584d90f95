//! From what was seen to findings. Pure.

use std::path::Path;
use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade, size, time};

use super::facts::{Above, Access, Boot, Facts, Locks, Remains, Space};
use crate::default_folder;

/// Less room than this, and nothing can be written soon. A lock takes two slots of some hundred bytes, rounded up to
/// two blocks of the filesystem.
const NO_ROOM: Space = Space { bytes: 64 * 1024, files: Some(16) };

/// Less room than this is gone soon if something else on the filesystem writes.
const LITTLE_ROOM: Space = Space { bytes: 16 * 1024 * 1024, files: Some(1_000) };

/// A listing reads all lock files: with more than this it takes seconds.
const MANY: usize = 100_000;

/// The start of the host is reckoned from two clocks; one of them may have been set meanwhile.
const CLOCK_ERROR: Duration = Duration::from_secs(60);

/// All findings.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![filesystem(facts.filesystem)];
    found.extend(place(&facts.path, facts.default, facts.access.as_ref().map_or(0, |access| access.me)));
    found.extend(facts.space.map(space));
    found.extend(facts.access.as_ref().map(permissions));
    found.push(boot(&facts.boot));
    found.push(clock(facts.clock_offset, facts.wall, facts.locks.highest));
    found.push(locks(&facts.locks, facts.alive));
    found.extend(damage(&facts.locks));
    found.push(leftovers(facts.remains));
    found
}

fn filesystem(magic: Option<u32>) -> Finding {
    let why = "file locks and FIFOs end at the host: two hosts that share a folder don't exclude each other";
    let found = |grade, what: String| Finding::new(grade, "filesystem", what, why);
    match magic.map(|magic| (local_filesystem(magic), magic)) {
        // A network filesystem was refused when the store was opened.
        Some((Some("fuse"), _)) => found(
            Grade::Warning,
            "a FUSE mount, which may be local or shared between hosts: it can't be told".to_owned(),
        )
        .fix("if other hosts can reach this folder, choose a local one with file:PATH"),
        Some((Some("overlay"), _)) => found(
            Grade::Note,
            "overlay: the layer of one container, which others (and the host) don't see".to_owned(),
        )
        .fix("to share locks between containers of one host, put the folder on a volume that they share"),
        Some((Some(name), _)) => found(Grade::Good, format!("{name}, which is local")),
        Some((None, magic)) => found(Grade::Note, format!("of an unknown kind (0x{magic:x})"))
            .fix("if it is shared between hosts, choose a local folder with file:PATH"),
        None => found(Grade::Note, "the kind of the filesystem can't be told".to_owned()),
    }
}

/// The common local filesystems, by the numbers that the kernel gives them.
fn local_filesystem(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0xef53 => "ext2/3/4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x794c_7630 => "overlay",
        0x6573_5546 => "fuse",
        _ => return None,
    })
}

/// Whether all processes that should exclude each other find this folder. Nothing is known of most that a user chose.
fn place(path: &Path, default: Option<&str>, me: u32) -> Option<Finding> {
    if let Some(split_by) = default {
        let place = path.display();
        let what =
            format!("{place} is the default of the user {me} on this host, in every environment; {split_by}");
        let why = "processes exclude each other only if they use the same folder";
        return Some(Finding::new(Grade::Good, "place", what, why));
    }
    let below = |folders: &[&'static str]| folders.iter().find(|folder| path.starts_with(folder)).copied();
    let (grade, parent, why) = if let Some(parent) = below(&["/tmp", "/var/tmp"]) {
        let why = "a service with PrivateTmp= sees another folder there; and programs that clean it delete what looks old, \
                   and with it locks in use: systemd-tmpfiles spares a folder that is in use, tmpreaper and tmpwatch do not";
        (Grade::Note, parent, why)
    } else if let Some(parent) = below(&["/run/user", "/var/run/user"]) {
        let why = "it is removed when its user logs out, and with it the locks of jobs that run on";
        (Grade::Warning, parent, why)
    } else if let Some(parent) = below(&["/dev/shm", "/run/shm"]).filter(|_| default_folder::logs_out(me)) {
        let why = "unless logind is told not to (RemoveIPC=no), it removes what a user has there when the user logs out, and \
                   with it the locks of jobs that run on";
        (Grade::Warning, parent, why)
    } else {
        return None;
    };
    let what = format!("{} is below {parent}", path.display());
    let fix =
        "choose a folder of your own with file:PATH, such as file:/var/lib/NAME, or file: for the default";
    Some(Finding::new(grade, "place", what, why).fix(fix))
}

fn space(space: Space) -> Finding {
    let files = space.files.map_or_else(String::new, |files| format!(" and {files} files"));
    let what = format!("room for {}{files}", size(space.bytes));
    let grade = match space {
        space if less(space, NO_ROOM) => Grade::Danger,
        space if less(space, LITTLE_ROOM) => Grade::Warning,
        _ => Grade::Good,
    };
    let why = "on a full filesystem no new lock can be had, and one that is given back may stay taken until there is room again";
    let found = Finding::new(grade, "space", what, why);
    if grade == Grade::Good { found } else { found.fix("make room, or choose another folder with file:PATH") }
}

fn less(space: Space, limit: Space) -> bool {
    let few = space.files.zip(limit.files).is_some_and(|(files, limit)| files < limit);
    space.bytes < limit.bytes || few
}

fn permissions(access: &Access) -> Finding {
    let why = "whoever can write to the folder can take every lock in it away, or forge one";
    let found = |grade, what: String| Finding::new(grade, "permissions", what, why);
    let mode = access.mode & 0o777;
    // What another user can put something else in the place of.
    let exposed = |above: &&Above| {
        let others = above.mode & 0o022 != 0 && above.mode & 0o1000 == 0;
        others || (above.owner != access.me && above.owner != 0)
    };
    if let Some(Above { path, owner, mode }) = access.above.iter().find(exposed) {
        let path = path.display();
        let what = match mode {
            0 => format!("{path} is a link of the user {owner} on the way to the folder"),
            mode => format!("{path}, above the folder, belongs to the user {owner} and has mode {mode:03o}"),
        };
        let what = format!("others can put another folder in its place: {what}");
        return Finding::new(Grade::Warning, "permissions", what, "a process that opens the other folder holds beside those in this one")
            .fix("choose a folder with only folders above it that are yours or root's and that no one else can write to, or that are sticky, as /tmp is");
    }
    match *access {
        // One that is not sticky was refused when the store was opened.
        Access { mode: all, .. } if all & 0o002 != 0 => found(
            Grade::Warning,
            format!("every user of this host can write to the folder (mode {mode:03o})"),
        )
        .fix("chmod o-w, and give those who share it a group"),
        Access { mode: all, hard_links: true, .. } if all & 0o020 != 0 => found(
            Grade::Warning,
            format!("shared with a group (mode {mode:03o}), where users can link each other's files into it"),
        )
        .fix("sysctl fs.protected_hardlinks=1"),
        Access { owner, me, .. } if owner != me => found(
            Grade::Note,
            format!("the folder belongs to the user {owner}, and this is the user {me} (mode {mode:03o})"),
        ),
        Access { mode: all, .. } if all & 0o020 != 0 => {
            found(Grade::Note, format!("shared with a group (mode {mode:03o})"))
        }
        _ => found(Grade::Good, format!("only its user can write to the folder (mode {mode:03o})")),
    }
}

fn boot(boot: &Boot) -> Finding {
    let why =
        "locks here are between processes that run on one kernel; who waits on another is taken for dead";
    let found = |grade, what: &str| Finding::new(grade, "boot", what, why);
    match boot {
        Boot { ours: None, .. } => found(Grade::Note, "the system does not tell which boot this is"),
        Boot { ours, theirs: Some(theirs), .. } if ours.as_ref() == Some(theirs) => {
            found(Grade::Good, "the folder was last used on this host, since it started")
        }
        Boot { theirs: None, .. } => found(Grade::Good, "the folder is new"),
        Boot { theirs_after_ours: Some(after), .. } if *after > CLOCK_ERROR => found(
            Grade::Danger,
            "another host, or a container with a kernel of its own, used the folder while this host ran",
        )
        .fix(
            "give each host a folder of its own with file:PATH, or use a store that several hosts can reach",
        ),
        _ => found(Grade::Good, "the folder was not used since this host started"),
    }
}

fn clock(offset: i64, wall: u64, highest: u64) -> Finding {
    let found = |grade, what: String, why| Finding::new(grade, "clock", what, why);
    let behind = Duration::from_micros(highest.saturating_sub(wall));
    if offset != 0 {
        let what = format!("this process runs with a boot clock of its own, {offset} s from the host's");
        let why = "leases with an end are measured on the boot clock: a process with another one sees them end early or late";
        return found(Grade::Danger, what, why).fix(
            "run all who share the folder in one time namespace, or don't use leases with an end (--lease)",
        );
    }
    if behind > Duration::from_secs(1) {
        let what = format!("the clock is {} behind the highest token that was given out", time(behind));
        let why = "tokens go on from the last one, so they rise all the same; if the folder were deleted now, they would not";
        return found(Grade::Warning, what, why)
            .fix("set the clock right (NTP), and don't delete the folder until then");
    }
    let why = "tokens start from the wall clock, and leases with an end are measured on the boot clock";
    found(Grade::Good, "the clock is past all tokens, and the boot clock is the host's".to_owned(), why)
}

fn locks(locks: &Locks, alive: usize) -> Finding {
    let used =
        if locks.unread { "too many to look into".to_owned() } else { format!("{} in use", locks.used) };
    let clients = if alive == 1 { "1 client".to_owned() } else { format!("{alive} clients") };
    let what = format!("{} lock files, {used}; {clients} besides this one", locks.files);
    let why = "a free lock keeps its file for a day, which makes the next claim quicker; a listing reads all of them";
    let found = |grade| Finding::new(grade, "locks", what, why);
    if locks.files > MANY {
        found(Grade::Note).fix("let files of free locks go sooner: file:PATH?retention=1h")
    } else {
        found(Grade::Good)
    }
}

fn damage(locks: &Locks) -> Option<Finding> {
    if locks.damaged == 0 {
        return None;
    }
    let more = match locks.damaged - locks.damaged_names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!("damaged lock files: {}{more}", locks.damaged_names.join(", "));
    let why = "nobody can take or give back a lock whose file can't be read";
    let fix = "make sure that nobody works under these locks, then delete their files in the folder q";
    Some(Finding::new(Grade::Danger, "damage", what, why).fix(fix))
}

fn leftovers(remains: Remains) -> Finding {
    let why = "what crashed processes leave is removed by the next sweep, within an hour; it holds no lock";
    let (grade, what) = match remains {
        Remains { fifos: 0, unfinished: 0 } => {
            (Grade::Good, "nothing is left of crashed processes".to_owned())
        }
        Remains { fifos, unfinished } => {
            (Grade::Note, format!("{fifos} FIFOs and {unfinished} unfinished files of crashed processes"))
        }
    };
    Finding::new(grade, "leftovers", what, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes: u64, files: Option<u64>) -> Grade {
        space(Space { bytes, files }).grade
    }

    #[test]
    fn a_full_filesystem_is_dangerous() {
        for (bytes, files, grade) in [
            (0, None, Grade::Danger),
            (1 << 40, Some(0), Grade::Danger),
            (1 << 20, None, Grade::Warning),
            (1 << 40, Some(999), Grade::Warning),
            (1 << 40, Some(1_000), Grade::Good),
            (16 << 20, None, Grade::Good),
        ] {
            assert_eq!(room(bytes, files), grade, "{bytes} bytes, {files:?} files");
        }
    }

    #[test]
    fn a_filesystem_that_may_be_shared_is_told() {
        for (magic, grade) in [
            (Some(0xef53), Grade::Good),
            (Some(0x0102_1994), Grade::Good),
            (Some(0x6573_5546), Grade::Warning),
            (Some(0x794c_7630), Grade::Note),
            (Some(1), Grade::Note),
            (None, Grade::Note),
        ] {
            assert_eq!(filesystem(magic).grade, grade, "{magic:x?}");
        }
    }

    #[test]
    fn folders_that_others_can_write_to_are_told() {
        let look = |owner, mode, above: &[(u32, u32)], hard_links| {
            let above = above.iter().enumerate();
            let above = above.map(|(n, &(owner, mode))| Above { path: format!("/{n}").into(), owner, mode });
            permissions(&Access { me: 7, owner, mode, above: above.collect(), hard_links })
        };
        let fine = &[(0, 0o755)][..];
        for (owner, mode, above, grade) in [
            (7, 0o700, fine, Grade::Good),
            (7, 0o700, &[(7, 0o700)], Grade::Good),
            (7, 0o700, &[(0, 0o755), (0, 0o1777), (7, 0o755)], Grade::Good),
            (7, 0o700, &[(0, 0o755), (0, 0), (7, 0)], Grade::Good),
            (7, 0o700, &[], Grade::Good),
            (7, 0o700, &[(0, 0o777)], Grade::Warning),
            (7, 0o700, &[(8, 0o755)], Grade::Warning),
            // Not only the one that it is in.
            (7, 0o700, &[(0, 0o755), (8, 0o755), (0, 0o755)], Grade::Warning),
            (7, 0o700, &[(0, 0o755), (0, 0o775), (7, 0o755)], Grade::Warning),
            (7, 0o700, &[(0, 0o1777), (8, 0), (7, 0o755)], Grade::Warning),
            (7, 0o777, fine, Grade::Warning),
            (7, 0o770, fine, Grade::Note),
            (0, 0o770, fine, Grade::Note),
        ] {
            let found = look(owner, mode, above, false);
            assert_eq!(found.grade, grade, "{owner} {mode:o} {above:?}: {found:?}");
        }
        let found = look(7, 0o700, &[(0, 0o755), (8, 0o750), (9, 0o755)], false);
        assert!(found.what.contains("/1, above the folder, belongs to the user 8"), "{found:?}");
        let shared = |mode| look(7, mode, fine, true).grade;
        assert_eq!((shared(0o700), shared(0o770)), (Grade::Good, Grade::Warning));
    }

    #[test]
    fn a_folder_that_another_host_uses_is_dangerous() {
        let id = |text: &str| Some(text.as_bytes().to_vec());
        let hour = Some(Duration::from_secs(3600));
        for (ours, theirs, after, grade) in [
            (id("a"), None, None, Grade::Good),
            (id("a"), id("a"), hour, Grade::Good),
            (id("a"), id("b"), None, Grade::Good),
            (id("a"), id("b"), Some(Duration::from_secs(5)), Grade::Good),
            (id("a"), id("b"), hour, Grade::Danger),
            (None, id("b"), hour, Grade::Note),
        ] {
            let facts = Boot { ours, theirs, theirs_after_ours: after };
            assert_eq!(boot(&facts).grade, grade, "{facts:?}");
        }
    }

    #[test]
    fn a_clock_behind_the_tokens_is_told() {
        let now = 1_800_000_000_000_000;
        assert_eq!(clock(0, now, 0).grade, Grade::Good);
        assert_eq!(clock(0, now, now + 1024).grade, Grade::Good);
        assert_eq!(clock(0, now, now + 3_600_000_000).grade, Grade::Warning);
        assert_eq!(clock(-5, now, 0).grade, Grade::Danger);
    }

    #[test]
    fn a_place_that_is_cleared_or_not_the_same_for_all_is_told() {
        let grade = |path: &str, me| place(Path::new(path), None, me).map(|finding| finding.grade);
        for (path, me, told) in [
            ("/tmp/leasehold-7", 7, Some(Grade::Note)),
            ("/var/tmp/x", 1007, Some(Grade::Note)),
            ("/run/user/1007/x", 1007, Some(Grade::Warning)),
            ("/dev/shm/x", 1007, Some(Grade::Warning)),
            ("/dev/shm/x", 7, None),
            ("/tmpfs/x", 7, None),
            ("/srv/locks", 1007, None),
        ] {
            assert_eq!(grade(path, me), told, "{path}");
        }
        let default = place(Path::new("/dev/shm/leasehold-7"), Some("containers"), 7).unwrap();
        assert!(default.grade == Grade::Good && default.what.ends_with("; containers"), "{default:?}");
    }

    #[test]
    fn damage_names_some_and_counts_the_rest() {
        let names = vec!["a".to_owned(), "b".to_owned()];
        let facts = Locks { files: 9, damaged: 5, damaged_names: names, ..Locks::default() };
        let found = damage(&facts).unwrap();
        assert_eq!(
            (found.grade, found.what.as_str()),
            (Grade::Danger, "damaged lock files: a, b and 3 more")
        );
        assert_eq!(damage(&Locks::default()), None);
    }

    #[test]
    fn many_files_and_leftovers_are_notes() {
        let many = |files| locks(&Locks { files, ..Locks::default() }, 1).grade;
        assert_eq!((many(7), many(MANY + 1)), (Grade::Good, Grade::Note));
        assert_eq!(leftovers(Remains::default()).grade, Grade::Good);
        assert_eq!(leftovers(Remains { fifos: 1, unfinished: 0 }).grade, Grade::Note);
    }
}
