//! Alone in its process, because it counts the open files of the process.

mod common;

use common::{Guest, until};
use leasehold_core::Want::Exclusive;
use leasehold_core::store::Otherwise;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn a_thousand_waits_leave_no_open_file_behind() {
    let temp = tempfile::tempdir().unwrap();
    let (me, other) = (Guest::at(temp.path()).await, Guest::at(temp.path()).await);
    let wait_once = async |i: usize| {
        let on = format!("n{}", i % 10);
        let (held, _) = other.hold(&on, Exclusive).await;
        let id = me.wait(&on, Exclusive).await;
        assert_eq!(me.ask(&on, Exclusive, Otherwise::GoAway).await.1, leasehold_core::store::Joined::Busy);
        if i.is_multiple_of(2) {
            other.leave(&on, held).await;
            me.granted(id).await;
            me.leave(&on, id).await;
        } else {
            me.leave(&on, id).await;
            other.leave(&on, held).await;
        }
    };
    for i in 0..20 {
        wait_once(i).await;
    }
    tokio::task::yield_now().await;
    let before = open_files();
    for i in 0..1000 {
        wait_once(i).await;
    }
    until("all files of waits are closed", || open_files() <= before).await;

    // And nothing at all is left of sessions that were dropped or closed.
    let before = open_files();
    for i in 0..50u32 {
        let guest = Guest::at(temp.path()).await;
        guest.hold("x", Exclusive).await;
        let next = Guest::at(temp.path()).await;
        next.wait("x", Exclusive).await;
        if i.is_multiple_of(2) {
            guest.session.clone().close().await.unwrap();
        }
        next.session.clone().close().await.unwrap();
    }
    until("all files of sessions are closed", || open_files() <= before).await;
}
