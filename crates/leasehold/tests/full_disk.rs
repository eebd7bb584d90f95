//! A filesystem that is full, has become read-only, or does not let a file be written, under locks that are held: a release that fails is not given up.
//!
//! The scenarios run as root in a mount namespace of their own, on small filesystems. Where that is not allowed they say so, and
//! check nothing.
#![cfg(feature = "file")]
#![allow(clippy::print_stdout, missing_docs)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Kind};
use tracing::field::{Field, Visit};

const INSIDE: &str = "LEASEHOLD_TEST_MOUNT";

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs one test of this file again, in a mount namespace with this folder on a filesystem of its own. `None` outside.
fn inside(test: &str, mount: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return Some(PathBuf::from(folder));
    }
    let allowed = Command::new("unshare").args(["-m", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("skipped: needs root, and a system that lets it make a mount namespace (unshare -m)");
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    let script = format!("set -e; mount --make-rprivate /; {mount}; exec \"$0\" --exact {test} --nocapture");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
    let done = command.env(INSIDE, temp.path()).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}", said(&done.stdout), said(&done.stderr));
    None
}

const SMALL: &str = "mount -t tmpfs -o size=1m,mode=700 tmpfs \"$LEASEHOLD_TEST_MOUNT\"";

/// Lines of the log of this process, as `LEVEL message error`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn begin() -> Self {
        let log = Log::default();
        tracing::subscriber::set_global_default(log.clone()).unwrap();
        log
    }

    /// The lines that people see by default, about releases.
    fn lines(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains("given back")).cloned().collect()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

async fn client(folder: &Path) -> Client {
    let options = Client::builder().default_lease(Duration::from_secs(1)).retry_for(Duration::from_secs(1));
    leasehold::connect_with(options, &format!("file:{}/locks", folder.display())).await.unwrap()
}

/// Takes permits until the file of the lock has just been replaced by a larger one: of that one only a half is written, so the
/// next change needs room that the filesystem may not have.
async fn permits(client: &Client, folder: &Path) -> Vec<Guard> {
    let file = folder.join("locks/q/x");
    let mut guards = Vec::new();
    loop {
        let before = file.metadata().map_or(0, |file| file.len());
        guards.push(client.semaphore("x", 1000).acquire(1).await.unwrap());
        let after = file.metadata().unwrap().len();
        if before > 0 && after > before && after >= 16 * 1024 {
            return guards;
        }
    }
}

/// Takes all the room there is.
fn fill(folder: &Path) -> PathBuf {
    use std::io::Write;
    let path = folder.join("ballast");
    let mut file = std::fs::File::create(&path).unwrap();
    while file.write_all(&[1; 512]).is_ok() {}
    path
}

async fn holders(client: &Client) -> usize {
    client.inspect("x").await.unwrap().holders.len()
}

async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < DEADLINE, "it never came to be: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_release_on_a_full_filesystem_is_tried_until_there_is_room() {
    let test = "a_release_on_a_full_filesystem_is_tried_until_there_is_room";
    let Some(folder) = inside(test, SMALL) else { return };
    let log = Log::begin();
    let (me, other) = (client(&folder).await, client(&folder).await);
    let mut guards = permits(&me, &folder).await;
    let all = guards.len();
    let ballast = fill(&folder);

    // Whoever waits for a release is told that it failed, and where.
    let e = guards.pop().unwrap().release().await.unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable);
    assert!(e.to_string().contains("locks/q/x") && e.to_string().contains("No space"), "{e}");
    // Several leases later it is still there, and so is one that nobody waits for.
    drop(guards.pop());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(holders(&other).await, all);
    // Other verbs: a new lock can't be had, and the error says where; looking works.
    let e = me.mutex("new").lock().await.unwrap_err();
    assert!(e.to_string().contains("locks/q/new") && e.advice_text().is_some(), "{e}");

    std::fs::remove_file(ballast).unwrap();
    until("both are given back", async || holders(&other).await == all - 2).await;
    until("the log says so", async || log.lines().len() > 1).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN") && lines[0].contains("No space") && lines[0].contains("it succeeds"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("INFO"), "{lines:?}");
    // The rest is given back as ever.
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(holders(&other).await, 0);
}

#[tokio::test]
async fn a_client_that_ends_takes_with_it_what_it_could_not_give_back() {
    let test = "a_client_that_ends_takes_with_it_what_it_could_not_give_back";
    let Some(folder) = inside(test, SMALL) else { return };
    let (me, other) = (client(&folder).await, client(&folder).await);
    let mut guards = permits(&me, &folder).await;
    let ballast = fill(&folder);
    guards.pop().unwrap().release().await.unwrap_err();
    drop(guards);
    drop(me);
    let sessions = folder.join("locks/s");
    until("its session ends", async || std::fs::read_dir(&sessions).unwrap().count() == 1).await;
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(holders(&other).await, 0);
}

/// Makes a file unchangeable even for root, also for those who have it open, or lets it be changed again.
fn chattr(flag: &str, file: &Path) -> bool {
    Command::new("chattr").arg(flag).arg(file).status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_release_that_is_not_permitted_is_tried_until_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let (me, other) = (client(temp.path()).await, client(temp.path()).await);
    let file = temp.path().join("locks/q/x");
    let guard = me.mutex("x").lock().await.unwrap();
    // Both have it open from now on.
    assert_eq!(holders(&other).await, 1);
    if !chattr("+i", &file) {
        println!("skipped: needs root, and a filesystem with immutable files (chattr +i)");
        return;
    }
    let released = guard.release().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let held = holders(&other).await;
    assert!(chattr("-i", &file));
    let e = released.unwrap_err();
    assert!(e.to_string().contains("locks/q/x") && e.advice_text().is_some(), "{e}");
    assert_eq!(held, 1);
    until("it is given back", async || holders(&other).await == 0).await;
}

#[tokio::test]
async fn a_release_from_a_damaged_file_is_tried_until_it_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let (me, other) = (client(temp.path()).await, client(temp.path()).await);
    let file = temp.path().join("locks/q/x");
    let guard = me.mutex("x").lock().await.unwrap();
    let whole = std::fs::read(&file).unwrap();
    // The same file, which both may have open.
    let write = |content: &[u8]| {
        std::fs::File::options().write(true).open(&file).unwrap().write_all_at(content, 0).unwrap();
    };
    write(&vec![0; whole.len()]);
    let e = guard.release().await.unwrap_err();
    assert!(e.to_string().contains("locks/q/x") && e.advice_text().is_some(), "{e}");
    write(&whole);
    until("it is given back", async || holders(&other).await == 0).await;
}

/// A disk of its own that the kernel can be told to be broken, as after an error of the device.
const DISK: &str = "mount -t tmpfs -o size=20m tmpfs \"$LEASEHOLD_TEST_MOUNT\"; cd \"$LEASEHOLD_TEST_MOUNT\"; \
    truncate -s 16m image; mkfs.ext4 -q image; mkdir disk; mount -o loop image disk; cd /";

fn there_are_loop_devices() -> bool {
    let find = "command -v mkfs.ext4 && losetup -f";
    Command::new("sh").args(["-c", find]).output().is_ok_and(|found| found.status.success())
}

#[tokio::test]
async fn a_release_on_a_filesystem_that_became_read_only_says_so_and_is_tried_again() {
    let test = "a_release_on_a_filesystem_that_became_read_only_says_so_and_is_tried_again";
    if !there_are_loop_devices() {
        println!("skipped: needs loop devices and mkfs.ext4");
        return;
    }
    let Some(folder) = inside(test, DISK) else { return };
    let log = Log::begin();
    let disk = folder.join("disk");
    let (me, other) = (client(&disk).await, client(&disk).await);
    let guard = me.mutex("x").lock().await.unwrap();
    assert_eq!(holders(&other).await, 1);
    let broken = Command::new("mount").args(["-o", "remount,abort"]).arg(&disk).status().unwrap();
    assert!(broken.success());
    let e = guard.release().await.unwrap_err();
    assert_eq!(e.kind(), Kind::Unavailable, "{e}");
    assert!(e.to_string().contains("locks/q/x"), "{e}");
    assert!(["Read-only", "Input/output"].iter().any(|why| e.to_string().contains(why)), "{e}");
    until("the log says so", async || !log.lines().is_empty()).await;
    // Several leases and many tries later it is still there, and there is still one line.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(holders(&other).await, 1);
    let lines = log.lines();
    assert!(
        lines.len() == 1 && lines[0].starts_with("WARN") && lines[0].contains("it succeeds"),
        "{lines:?}"
    );
}
