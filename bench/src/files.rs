//! Lock and release of a free name on `file:`, against open, flock, unlock and close.

use std::fs::File;
use std::path::PathBuf;

use tokio::runtime::Builder;

use crate::measure::{Pair, Report, Target, per_operation, time};
use crate::{Done, floor};

const NAMES: usize = 16;

pub(crate) fn run(report: &mut Report) -> Done {
    report.section(&format!("file: lock+release of a free name, {NAMES} names, one thread"));
    let folder = tempfile::tempdir()?;
    let paths: Vec<PathBuf> = (0..NAMES).map(|n| folder.path().join(format!("bare-{n}"))).collect();
    for path in &paths {
        File::create(path)?;
    }
    let names: Vec<String> = (0..NAMES).map(|n| format!("orders/{n}")).collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let url = format!("file:{}", folder.path().join("store").display());
    let client = runtime.block_on(leasehold::connect(&url))?;

    let pairs = report.work(20_000);
    let bare = || -> Done {
        for path in paths.iter().cycle().take(pairs) {
            floor::open_flock_unlock_close(path)?;
        }
        Ok(())
    };
    let ours = async || -> Done {
        for name in names.iter().cycle().take(pairs) {
            client.mutex(name).lock().await?.release().await?;
        }
        Ok(())
    };
    let times = Pair::alternate(
        report.rounds(),
        || per_operation(pairs, bare),
        || per_operation(pairs, || runtime.block_on(ours())),
    )?;
    report.line("open+flock+unlock+close of an existing file", time(times.floor()), "");
    report.line("leasehold", time(times.ours()), "");
    let slower = times.slower();
    report.target("file: times the floor", slower.median, "×", Target::AtMost(8.0), slower.spread());
    Ok(runtime.block_on(client.close())?)
}
