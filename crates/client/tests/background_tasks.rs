//! The tasks of the background thread. A program of its own: all clients of a process share that thread.

mod common;

use common::until;
use leasehold_background::Background;
use leasehold_client::Client;
use leasehold_memory::Memory;

#[tokio::test]
async fn a_client_has_one_task_that_ends_with_it_and_none_on_the_user_s_runtime() {
    let background = Background::get().unwrap();
    let tasks = || background.runtime().metrics().num_alive_tasks();
    let before = tasks();
    let client = Client::open(Memory::new()).await.unwrap();
    drop(client.mutex("n").lock().await.unwrap());
    until("only the renewals are left", async || tasks() == before + 1).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    drop(client);
    until("the renewals have ended", async || tasks() == before).await;
}
