//! Folders that other users can write to, or have prepared. Other users are played by real processes, so root is needed.
#![allow(clippy::print_stdout)]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use common::{Guest, Other, name, role, until};
use leasehold_core::Want::Exclusive;
use leasehold_core::doctor::Grade;
use leasehold_core::store::{Leave, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Error, Kind, Result};

/// Two users of one group, and one who is in no group of theirs.
const ANN: u32 = 64_001;
const BOB: u32 = 64_002;
const MALLORY: u32 = 64_003;
const TEAM: u32 = 64_100;

const SECRET: &str = "the secret of another user\n";

/// What is done in other processes.
#[tokio::test]
async fn child() {
    let Some(role) = role() else { return };
    let [what, folder] = [&role[0], &role[1]];
    match what.as_str() {
        // Takes the lock, says so, and keeps it until it is killed.
        "hold" => match open(Path::new(folder)) {
            Ok(store) => {
                let me = Guest::of(store).await;
                me.hold("x", Exclusive).await;
                println!("held");
                std::future::pending::<()>().await;
            }
            Err(e) => println!("refused {e}"),
        },
        // Waits in line, says when it stands there, and when it holds.
        "wait" => {
            let me = Guest::of(open(Path::new(folder)).unwrap()).await;
            let id = me.wait("x", Exclusive).await;
            println!("waits");
            me.granted_at_last(id).await;
            println!("granted");
            me.leave("x", id).await;
            me.session.clone().close().await.unwrap();
            println!("over");
        }
        "open" => match open(Path::new(folder)) {
            Ok(store) => {
                let me = Guest::of(store).await;
                println!("opened {}", me.try_once("x").await.is_some());
                me.session.clone().close().await.unwrap();
            }
            Err(e) => println!("refused {e}"),
        },
        other => panic!("{other}"),
    }
}

fn open(path: &Path) -> Result<Arc<dyn Store>> {
    open_url(&format!("file:{}", path.display()))
}

fn open_url(url: &str) -> Result<Arc<dyn Store>> {
    leasehold_file::open(StoreUrl::parse(url).unwrap())
}

/// A place that all users can reach, with a file that is nobody else's business.
struct Stage {
    temp: tempfile::TempDir,
}

impl Stage {
    /// `None`, with a word on why, where other users can't be played.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can play other users");
            return None;
        }
        let stage = Stage { temp: tempfile::tempdir().unwrap() };
        set_mode(stage.temp.path(), 0o755);
        std::fs::write(stage.secret(), SECRET).unwrap();
        set_mode(&stage.secret(), 0o600);
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn secret(&self) -> PathBuf {
        self.path("secret")
    }

    /// A folder with this owner, group and mode.
    fn folder(&self, owner: u32, group: u32, mode: u32) -> PathBuf {
        let path = self.path("locks");
        std::fs::create_dir(&path).unwrap();
        chown(&path, Some(owner), Some(group)).unwrap();
        set_mode(&path, mode);
        path
    }

    /// A folder for every user, in use already.
    fn sticky_in_use(&self) -> PathBuf {
        let path = self.folder(0, 0, 0o1777);
        open(&path).unwrap();
        path
    }

    #[track_caller]
    fn secret_is_untouched(&self) {
        let meta = self.secret().metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o600, 0, 0));
        assert_eq!(std::fs::read_to_string(self.secret()).unwrap(), SECRET);
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A shell script of another user.
fn script(user: u32, folder: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).uid(user).gid(user).current_dir(folder);
    command
}

#[track_caller]
fn as_user(user: u32, folder: &Path, text: &str) {
    assert!(script(user, folder, text).status().unwrap().success(), "{text}");
}

/// Something that a user does until this is dropped.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a folder, uses a lock in it and watches it, all that a program can do.
async fn use_all(url: &str) -> Result<()> {
    let me = Guest::try_of(open_url(url)?).await?;
    let (id, joined) = me.try_ask("x").await?;
    drop(me.session.clone().watch(String::new()).await?);
    let _ = me.session.clone().list(String::new(), None, 100).await?;
    if joined {
        me.session.clone().leave(Leave::new(name("x"), id)).await?;
    }
    me.session.clone().close().await
}

#[track_caller]
fn refused(e: &Error, words: &[&str]) {
    assert!(matches!(e.kind(), Kind::Refused | Kind::Store | Kind::Invalid), "{e}");
    assert!(e.advice_text().is_some(), "{e}");
    for word in words {
        assert!(e.to_string().contains(word), "{word:?} is missing: {e}");
    }
}

#[tokio::test]
async fn a_link_in_place_of_a_file_is_never_followed() {
    for file in ["VERSION", "watches", "swept", "boot", "floor"] {
        let Some(stage) = Stage::new() else { return };
        let path = stage.folder(0, 0, 0o1777);
        let link = format!("ln -s {} {file}", stage.secret().display());
        if file == "VERSION" {
            as_user(MALLORY, &path, &link);
        } else {
            open(&path).unwrap();
            // As if its owner had removed it, to have it made again.
            let _ = std::fs::remove_file(path.join(file));
            as_user(MALLORY, &path, &link);
        }
        // The reader of `boot` takes a bad one for none, and the reader of `floor` needs none here.
        if let Err(e) = use_all(&format!("file:{}?retention=1ms", path.display())).await {
            refused(&e, &[file, "symbolic link"]);
        } else {
            assert!(!matches!(file, "VERSION" | "watches" | "swept"), "{file}");
        }
        stage.secret_is_untouched();
    }
}

#[tokio::test]
async fn a_link_in_place_of_a_directory_is_never_followed() {
    for part in ["q", "s", "w"] {
        let Some(stage) = Stage::new() else { return };
        // As old as only things are that a sweep removes.
        let precious = stage.path("precious");
        std::fs::create_dir(&precious).unwrap();
        for file in [".profile", "orders", &"0".repeat(32)] {
            std::fs::write(precious.join(file), SECRET).unwrap();
            let old = ["-d", "2001-01-01", precious.join(file).to_str().unwrap()].map(str::to_owned);
            assert!(Command::new("touch").args(old).status().unwrap().success());
        }
        let path = stage.folder(0, 0, 0o1777);
        as_user(MALLORY, &path, &format!("ln -s {} {part}", precious.display()));
        let e = use_all(&format!("file:{}?retention=1ms", path.display())).await.unwrap_err();
        refused(&e, &[&format!("locks/{part}"), "symbolic link"]);
        assert_eq!(std::fs::read_dir(&precious).unwrap().count(), 3, "{part}");
        let mode = precious.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o755, "{part}");
    }
}

#[tokio::test]
async fn a_folder_that_another_user_has_prepared_is_refused() {
    for mode in [0o700, 0o755, 0o770, 0o777, 0o1777] {
        let Some(stage) = Stage::new() else { return };
        let path = stage.folder(MALLORY, MALLORY, mode);
        let prepare =
            format!("mkdir -m {:o} q s w; echo leasehold-file 1 > VERSION; : > watches", mode & 0o777);
        as_user(MALLORY, &path, &prepare);
        let e = use_all(&format!("file:{}", path.display())).await.unwrap_err();
        refused(&e, &["locks", &MALLORY.to_string()]);
        assert_eq!(path.join("watches").metadata().unwrap().mode() & 0o777, 0o644, "{mode:o}");
        // Who made it may use it, unless every other user can replace what is in it.
        let said = Other::start_as(MALLORY, MALLORY, &format!("open {}", path.display())).says("ed ");
        assert_eq!(said.contains("opened true"), mode != 0o777, "{mode:o}: {said}");
    }
}

#[tokio::test]
async fn a_directory_that_another_user_has_put_into_a_shared_folder_is_refused() {
    for part in ["q", "s", "w"] {
        let Some(stage) = Stage::new() else { return };
        let path = stage.folder(0, 0, 0o1777);
        as_user(MALLORY, &path, &format!("mkdir {part}; chmod 777 {part}"));
        let e = use_all(&format!("file:{}", path.display())).await.unwrap_err();
        refused(&e, &[&format!("locks/{part}"), &MALLORY.to_string()]);
    }
}

#[tokio::test]
async fn a_directory_that_more_can_write_to_than_to_its_folder_is_refused() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.folder(0, 0, 0o755);
    open(&path).unwrap();
    set_mode(&path.join("q"), 0o777);
    refused(&open(&path).err().unwrap(), &["locks/q", "777"]);
    set_mode(&path.join("q"), 0o755);
    open(&path).unwrap();
}

#[tokio::test]
async fn the_base_is_no_link_and_what_is_above_it_may_be() {
    let Some(stage) = Stage::new() else { return };
    std::fs::create_dir(stage.path("real")).unwrap();
    open(&stage.path("real/locks")).unwrap();
    symlink("real", stage.path("by-link")).unwrap();
    open(&stage.path("by-link/locks")).unwrap();
    open(&stage.path("by-link/locks/")).unwrap();
    symlink("real/locks", stage.path("base")).unwrap();
    symlink("nowhere", stage.path("dangling")).unwrap();
    for base in ["base", "base/", "base/.", "dangling", "dangling/below"] {
        refused(&open(&stage.path(base)).err().unwrap(), &["symbolic link"]);
    }
    assert!(!stage.path("nowhere").exists());
}

#[tokio::test]
async fn a_fifo_or_a_device_in_place_of_a_file_is_refused_and_never_waited_for() {
    let Some(stage) = Stage::new() else { return };
    for file in ["VERSION", "watches", "swept", "boot", "floor", "q/x"] {
        for make in ["mkfifo -m 666 %", "mknod -m 666 % c 1 3", "mkdir %"] {
            let path = stage.sticky_in_use();
            let _ = std::fs::remove_file(path.join(file));
            as_user(0, &path, &make.replace('%', file));
            let url = format!("file:{}?retention=1ms", path.display());
            let used = tokio::time::timeout(Duration::from_secs(20), use_all(&url)).await;
            match used.unwrap_or_else(|_| panic!("{file} made by {make}: it hangs")) {
                Err(e) => refused(&e, &[file]),
                Ok(()) => assert!(matches!(file, "boot" | "floor"), "{file} made by {make}"),
            }
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_with_a_second_name_is_not_written() {
    let Some(stage) = Stage::new() else { return };
    // Most kernels are set up so that no other user can do this to a file that is not theirs; not all are.
    for file in ["watches", "swept", "q/x"] {
        let path = stage.sticky_in_use();
        let _ = std::fs::remove_file(path.join(file));
        std::fs::hard_link(stage.secret(), path.join(file)).unwrap();
        let before = stage.secret().metadata().unwrap();
        let e = use_all(&format!("file:{}?retention=1ms", path.display())).await.unwrap_err();
        refused(&e, &[file]);
        stage.secret_is_untouched();
        let after = stage.secret().metadata().unwrap();
        assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()), "{file}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[tokio::test]
async fn a_message_goes_to_a_fifo_and_to_nothing_else() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.sticky_in_use();
    let (me, other) = (Guest::at(&path).await, Guest::at(&path).await);
    let (held, _) = me.hold("x", Exclusive).await;
    other.wait("x", Exclusive).await;
    // What would be told goes to a file that has taken the place of the FIFO.
    let fifo = path.join("s").join(other.id.to_string());
    for planted in [true, false] {
        std::fs::remove_file(&fifo).unwrap();
        if planted {
            std::fs::hard_link(stage.secret(), &fifo).unwrap();
        } else {
            symlink(stage.secret(), &fifo).unwrap();
        }
        let third = Guest::at(&path).await;
        assert!(third.try_once("y").await.is_some());
        let _ = third.session.clone().revoke(name("x"), None).await;
        stage.secret_is_untouched();
    }
    let _ = me.session.clone().leave(Leave::new(name("x"), held)).await;
    stage.secret_is_untouched();
}

#[tokio::test]
async fn a_sweep_removes_nothing_but_what_is_ours() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.folder(0, 0, 0o700);
    open(&path).unwrap();
    let foreign =
        ["q/.profile", "q/.hidden-1", "s/.bashrc", "s/README", "w/notes.txt", "w/.x-y", "s/0123456789abcdef"];
    for file in foreign {
        std::fs::write(path.join(file), "x").unwrap();
    }
    let id = "0123456789abcdef0123456789abcdef";
    for link in [format!("q/.{id}-1"), format!("s/{id}"), format!("w/{id}.78")] {
        symlink(stage.secret(), path.join(link)).unwrap();
    }
    for file in std::fs::read_dir(path.join("q")).unwrap().chain(std::fs::read_dir(path.join("s")).unwrap()) {
        let file = file.unwrap().path();
        let status = Command::new("touch").args(["-h", "-d", "2001-01-01"]).arg(&file).status().unwrap();
        assert!(status.success());
    }
    // Something of ours, as old, is the sign that the sweep came by.
    let ours = path.join(format!("q/.{}-7", "f".repeat(32)));
    std::fs::write(&ours, "x").unwrap();
    assert!(Command::new("touch").args(["-d", "2001-01-01"]).arg(&ours).status().unwrap().success());
    use_all(&format!("file:{}?retention=1ms", path.display())).await.unwrap();
    until("a sweep", || {
        let _ = open(&path);
        !ours.exists()
    })
    .await;
    for file in foreign {
        assert!(path.join(file).exists(), "{file}");
    }
    stage.secret_is_untouched();
}

/// Nothing keeps such a user from it, so the doctor tells.
#[tokio::test]
async fn the_doctor_names_every_folder_above_that_another_user_can_move() {
    let Some(stage) = Stage::new() else { return };
    let make = |path: &str, owner| {
        std::fs::create_dir(stage.path(path)).unwrap();
        chown(stage.path(path), Some(owner), Some(owner)).unwrap();
    };
    make("m", MALLORY);
    make("m/b", 0);
    make("own", 0);
    symlink("m/b", stage.path("link")).unwrap();
    symlink("../own", stage.path("m/back")).unwrap();
    for (folder, named) in [
        ("m/b/locks", Some("/m,")),
        ("link/locks", Some("/m,")),
        ("m/back/locks", Some("/m,")),
        ("own/locks", None),
    ] {
        let found = open(&stage.path(folder)).unwrap().examine().await.unwrap();
        let permissions = found.iter().find(|finding| finding.check == "permissions").unwrap();
        match named {
            Some(path) => {
                assert_eq!(permissions.grade, Grade::Warning, "{folder}: {permissions:?}");
                let words = [path, &MALLORY.to_string()];
                assert!(
                    words.iter().all(|word| permissions.what.contains(word)),
                    "{folder}: {permissions:?}"
                );
            }
            None => assert_eq!(permissions.grade, Grade::Good, "{folder}: {permissions:?}"),
        }
    }
    // What it warns of.
    let mut first = Other::start_as(0, 0, &format!("hold {}", stage.path("m/b/locks").display()));
    first.says("held");
    as_user(MALLORY, &stage.path("m"), "mv b b2");
    make("m/b", 0);
    assert!(Guest::at(&stage.path("m/b/locks")).await.try_once("x").await.is_some());
}

/// What is not ours stays, also when it stands in the place of the queues and the host has restarted.
#[tokio::test]
async fn after_a_boot_nothing_is_removed_but_what_is_ours() {
    let Some(stage) = Stage::new() else { return };
    let files = ["thesis.tex", "notes", "scan~1", &format!("photo~{}", "0".repeat(32))];
    let fill =
        |folder: &Path| files.iter().for_each(|file| std::fs::write(folder.join(file), SECRET).unwrap());
    let all_there = |folder: &Path| files.iter().all(|file| folder.join(file).exists());
    let restart = |path: &Path| {
        let _ = std::fs::remove_file(path.join("boot"));
        std::fs::write(path.join("boot"), "another\n").unwrap();
    };

    // The user's own folder with a directory of documents in the place of the queues, and two files that a crash left.
    let path = stage.folder(0, 0, 0o700);
    open(&path).unwrap();
    fill(&path.join("q"));
    let slot = [b"LHQ1".as_slice(), &[7; 4092]].concat();
    let damaged = [("empty", vec![]), ("zeros", vec![0; 4096]), ("torn", slot)];
    let hashed = format!("a_b~{}", "1".repeat(32));
    for (file, content) in &damaged {
        std::fs::write(path.join("q").join(file), content).unwrap();
    }
    std::fs::write(path.join("q").join(&hashed), [0; 4096]).unwrap();
    restart(&path);
    use_all(&format!("file:{}", path.display())).await.unwrap();
    assert!(all_there(&path.join("q")));
    for file in damaged.map(|(file, _)| file).iter().chain([&hashed.as_str()]) {
        assert!(!path.join("q").join(file).exists(), "{file} was left by a crash");
    }
    std::fs::remove_dir_all(&path).unwrap();

    // A member of the group puts a directory there that only root can read, or one in which only its owners may remove.
    for (owner, mode) in [(0, 0o700), (0, 0o3770), (0, 0o750)] {
        let path = stage.folder(0, TEAM, 0o2770);
        open(&path).unwrap();
        let other = path.join("archive");
        std::fs::create_dir(&other).unwrap();
        fill(&other);
        chown(&other, Some(owner), Some(if mode == 0o3770 { TEAM } else { 0 })).unwrap();
        set_mode(&other, mode);
        let mut member = script(ANN, &path, "mv q q.old; mv archive q; rm -f boot; echo x > boot");
        assert!(member.gid(TEAM).status().unwrap().success(), "{mode:o}");
        let e = use_all(&format!("file:{}", path.display())).await.unwrap_err();
        refused(&e, &["locks/q"]);
        assert!(all_there(&path.join("q")), "{mode:o}");
        let after = path.join("q").metadata().unwrap();
        assert_eq!(after.mode() & 0o7777, mode, "{mode:o}");
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[tokio::test]
async fn while_a_member_of_the_group_swaps_files_for_links_nothing_outside_is_touched() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.folder(0, TEAM, 0o2770);
    open(&path).unwrap();
    let precious = stage.path("precious");
    // One directory of root's outside of the folder, and one in it, which the member can only move.
    let archive = path.join(".archive");
    for (folder, mode) in [(&precious, 0o755), (&archive, 0o700)] {
        std::fs::create_dir(folder).unwrap();
        chown(folder, None, Some(0)).unwrap();
        set_mode(folder, mode);
        std::fs::write(folder.join(".profile"), SECRET).unwrap();
        std::fs::write(folder.join("orders"), SECRET).unwrap();
    }
    let id = archive.metadata().unwrap().ino();
    let swap = format!(
        "rm -rf q3; ln -sf {secret} watches; ln -sf {secret} swept; ln -sfn {precious} q2; mv -T q q3; mv -T q2 q; mv -T q q2; \
         mv -T .archive q; echo x > boot; mv -T q .archive; mv -T q3 q; rm -f watches swept q2; ln -sf {secret} q/x; rm -rf q; sleep 0.01",
        secret = stage.secret().display(),
        precious = precious.display(),
    );
    let mut script = Command::new("sh");
    script.args(["-c", &format!("while :; do {swap}; done 2>/dev/null")]);
    let busy = Busy(script.uid(ANN).gid(TEAM).current_dir(&path).spawn().unwrap());
    // In each round the directory of the queues is removed, so what works has made it again.
    let (mut worked, mut failed) = (0, 0);
    let start = std::time::Instant::now();
    while worked < 20 || failed < 20 {
        assert!(start.elapsed() < common::DEADLINE, "it worked {worked} times, and failed {failed} times");
        match use_all(&format!("file:{}?retention=1ms", path.display())).await {
            Ok(()) => worked += 1,
            Err(_) => failed += 1,
        }
    }
    drop(busy);
    stage.secret_is_untouched();
    let archive = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let archive =
        archive.filter(|path| !path.is_symlink()).find(|path| path.metadata().unwrap().ino() == id).unwrap();
    for (folder, mode) in [(&precious, 0o755), (&archive, 0o700)] {
        let meta = folder.metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (mode, 0), "{folder:?}");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, [".profile", "orders"], "{folder:?}");
    }
}

#[tokio::test]
async fn users_share_a_folder_by_a_group_or_by_the_sticky_bit() {
    for (group, mode, bits) in
        [(TEAM, 0o770, 0o060), (TEAM, 0o2770, 0o060), (TEAM, 0o1770, 0o060), (0, 0o1777, 0o066)]
    {
        let Some(stage) = Stage::new() else { return };
        let path = stage.folder(0, group, mode);
        // Its owner uses it first: what is in it is the owner's.
        let said = Other::start_as(ANN, TEAM, &format!("open {}", path.display())).says("ed ");
        assert!(said.contains("refused") && said.contains("has to use it once"), "{mode:o}: {said}");
        use_all(&format!("file:{}", path.display())).await.unwrap();

        let mut ann = Other::start_as(ANN, TEAM, &format!("hold {}", path.display()));
        ann.says("held");
        let mut bob = Other::start_as(BOB, TEAM, &format!("wait {}", path.display()));
        bob.says("waits");
        // A queue that is too long for its file makes another one take its place.
        let me = Guest::at(&path).await;
        let mut waiting = Vec::new();
        for _ in 0..60 {
            waiting.push(me.wait("x", Exclusive).await);
        }
        ann.kill();
        bob.says("granted");
        bob.says("over");
        for id in waiting {
            me.leave("x", id).await;
        }
        let file = path.join("q/x").metadata().unwrap();
        assert_eq!(file.mode() & 0o777, 0o600 | bits, "{mode:o}");
        me.session.clone().close().await.unwrap();

        // What is kept of the boot and of removed locks can be replaced by all who share the folder.
        for (user, last) in [(ANN, 1), (BOB, 2)] {
            std::fs::remove_file(path.join("boot")).unwrap();
            let said = Other::start_as(user, TEAM, &format!("open {}", path.display())).says("ed ");
            assert!(said.contains("opened true"), "{mode:o} {last}: {said}");
        }
        std::fs::write(path.join("boot"), "another boot\n").unwrap();
        chown(path.join("boot"), Some(BOB), Some(TEAM)).unwrap();
        let said = Other::start_as(ANN, TEAM, &format!("open {}", path.display())).says("ed ");
        assert!(said.contains("opened true"), "{mode:o}: {said}");
        assert_ne!(std::fs::read_to_string(path.join("boot")).unwrap(), "another boot\n");

        // Who is not in the group stays outside.
        let said = Other::start_as(MALLORY, MALLORY, &format!("open {}", path.display())).says("ed ");
        assert_eq!(said.contains("opened true"), mode == 0o1777, "{mode:o}: {said}");
    }
}

#[tokio::test]
async fn users_who_may_not_write_to_the_folder_can_not_lock_its_files_either() {
    let Some(stage) = Stage::new() else { return };
    let path = stage.folder(0, 0, 0o755);
    let me = Guest::at(&path).await;
    me.hold("x", Exclusive).await;
    for file in ["q/x", "swept", "watches", "boot"] {
        let file = path.join(file);
        if file.exists() {
            // One who can open a file can keep its kernel lock, and with it everybody else out.
            let opened =
                script(MALLORY, Path::new("/"), &format!("exec 3< {}", file.display())).output().unwrap();
            assert!(!opened.status.success(), "{}", file.display());
        }
    }
}
