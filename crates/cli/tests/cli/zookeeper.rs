//! Commands under a lock of ZooKeeper, whose leases are as long as its sessions, and not as others.

use std::time::Duration;

use leasehold_testkit::servers::{ZooKeeper, ZooKeeperOptions};

use crate::house::House;

#[test]
fn a_command_is_left_alone_while_its_lease_is_renewed() {
    // The longest session is 20 ticks.
    let server = ZooKeeper::start(ZooKeeperOptions::new().tick(Duration::from_millis(500)));
    let (house, url) = (House::new(), format!("zookeeper://{}?session=10s", server.address()));
    let done =
        house.run(["--store", &url, "run", "orders", "--", "sh", "-c", "sleep 4; echo done"]).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("done\n", ""));
}
