//! Getting the lock: one name or several, whatever is wanted of them.

use leasehold::{Client, MultiGuard, Part, Result, Want};

use tokio::time::Instant;

use super::plan::{Patience, Plan};

/// Claims all the locks of the plan, in what is left of the time that began at `asked`. `None` if others have them then; nothing is left in
/// any queue.
pub(crate) async fn claim(client: &Client, plan: &Plan, asked: Instant) -> Result<Option<MultiGuard>> {
    let parts = plan.names.iter().map(|name| match plan.want {
        Want::Exclusive => Part::mutex(name),
        Want::Shared => Part::read(name),
        Want::Permits { n, of } => Part::permits(name, n, of),
    });
    let mut locks = client.multi(parts).order(plan.order);
    if let Some(lease) = plan.lease {
        locks = locks.lease(lease);
    }
    match plan.patience {
        Patience::None => locks.try_lock().await,
        Patience::For(wait) => locks.lock_within(wait.saturating_sub(asked.elapsed())).await,
        Patience::Endless => locks.lock().await.map(Some),
    }
}
