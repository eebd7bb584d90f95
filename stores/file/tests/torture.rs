//! Processes that want one lock in every way there is, and are killed at random moments.
//!
//! Each holds a lock of the kernel's own on other files while it believes that it holds ours: if that can't be had, two
//! are inside. And each must be let in soon, without asking: a wake-up that got lost shows as a wait that is too long.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Guest, Other, role, within};
use leasehold_core::Want::{Exclusive, Shared};
use leasehold_core::store::{Joined, News, Otherwise, Renewed};
use leasehold_core::{EntryId, Want};
use rustix::fs::FlockOperation;

/// How long it goes on.
const TIME: Duration = Duration::from_secs(4);

/// How many processes there are at a time.
const PROCESSES: usize = 6;

/// No client would ask again before that.
const TOO_LONG: Duration = Duration::from_secs(8);

/// Numbers that look random and need no crate.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test]
async fn child() {
    let Some(role) = role() else { return };
    let mut dice = Dice(u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let witness = |n| std::fs::File::create(Path::new(&role[2]).with_extension(n)).unwrap();
    // When we are killed, the kernel lets go of our files in an order of its own: one witness before the session and one
    // behind it, so that one of them is free by the time at which others see that we are dead.
    let before = witness("1");
    let me = Guest::at(Path::new(&role[1])).await;
    let witnesses = [before, witness("2")];
    let stop = Path::new(&role[2]).with_extension("stop");
    while !stop.exists() {
        let want = if dice.roll(3) == 0 { Shared } else { Exclusive };
        if let Some(id) = get_in(&me, &mut dice, want).await {
            inside(&witnesses, &mut dice, want).await;
            me.leave("n", id).await;
        }
    }
    me.session.clone().close().await.unwrap();
}

async fn inside(witnesses: &[std::fs::File; 2], dice: &mut Dice, want: Want) {
    let how = match want {
        Shared => FlockOperation::NonBlockingLockShared,
        _ => FlockOperation::NonBlockingLockExclusive,
    };
    let free = witnesses.each_ref().map(|witness| rustix::fs::flock(witness, how).is_ok());
    assert!(free != [false, false], "somebody else is inside");
    match dice.roll(4) {
        0 => tokio::time::sleep(Duration::from_micros(dice.roll(3000))).await,
        1 => tokio::task::yield_now().await,
        _ => {}
    }
    witnesses.iter().for_each(|witness| rustix::fs::flock(witness, FlockOperation::Unlock).unwrap());
}

/// Gets in by queueing, barging or trying; or gives up on the way.
async fn get_in(me: &Guest, dice: &mut Dice, want: Want) -> Option<EntryId> {
    let otherwise =
        [Otherwise::Queue, Otherwise::Queue, Otherwise::Barge, Otherwise::GoAway][dice.roll(4) as usize];
    let (id, joined) = me.ask("n", want, otherwise).await;
    match joined {
        Joined::Held(_) => return Some(id),
        Joined::Busy => return None,
        Joined::Waiting(_) => {}
    }
    if dice.roll(5) == 0 {
        tokio::time::sleep(Duration::from_micros(dice.roll(2000))).await;
        me.leave("n", id).await;
        return None;
    }
    loop {
        let note = within(TOO_LONG, me.any_note()).await;
        if note.id != id {
            continue; // About one that was given up.
        }
        match note.news {
            News::Granted(_) => return Some(id),
            News::Retry => match me.renew("n", id, None).await.unwrap() {
                Renewed::Held(_) => return Some(id),
                Renewed::Waiting(_) => {}
                Renewed::Gone(lost) => panic!("{lost}"),
            },
            News::Gone(lost) => panic!("{lost}"),
            News::ReleaseRequested => panic!("nobody asked for it"),
        }
    }
}

#[test]
fn nobody_is_inside_with_another_and_nobody_is_forgotten() {
    let temp = tempfile::tempdir().unwrap();
    let witness = temp.path().join("witness");
    let role = format!("run {} {}", temp.path().join("locks").display(), witness.display());
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut all: Vec<Other> = (0..PROCESSES).map(|_| Other::start(&role)).collect();
    let end = Instant::now() + TIME;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10 + dice.roll(60)));
        let victim = &mut all[dice.roll(PROCESSES as u64) as usize];
        assert!(victim.is_running(), "a process failed: see its message above");
        victim.kill();
        *victim = Other::start(&role);
    }
    std::fs::write(witness.with_extension("stop"), "").unwrap();
    assert!(all.iter_mut().all(Other::finished_well), "a process failed: see its message above");
}
