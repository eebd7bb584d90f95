//! The statements of `docs/fencing.md`, taken from the page itself.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use super::{Database, Link, Ran, SqlServer, fresh_prefix};
use crate::wait::{not_yet, soon};

/// The page says `accounts` and `fences`; here they are tables of one scenario.
struct Page {
    text: String,
    prefix: String,
}

impl Page {
    fn read() -> Page {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fencing.md");
        Page { text: std::fs::read_to_string(path).expect("the page"), prefix: fresh_prefix() }
    }

    fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The one statement with this in it, for a token and a balance.
    fn statement(&self, part: &str, token: u32, balance: u32) -> String {
        let blocks = self.text.split("```sql").skip(1).filter_map(|rest| rest.split("```").next());
        let plain = |block: &str| {
            let lines = block.lines().map(|line| line.split("--").next().unwrap_or_default());
            lines.collect::<Vec<_>>().join("\n")
        };
        let all: Vec<String> =
            blocks.flat_map(|block| plain(block).split(';').map(str::to_owned).collect::<Vec<_>>()).collect();
        let found: Vec<&String> = all.iter().filter(|statement| statement.contains(part)).collect();
        let [one] = found.as_slice() else { panic!("{} statements with {part:?}", found.len()) };
        one.trim()
            .replace("accounts", &self.table("accounts"))
            .replace("fences", &self.table("fences"))
            .replace(":token", &token.to_string())
            .replace(":new", &balance.to_string())
            .replace(":id", "7")
    }
}

async fn connect(db: impl Database) -> Box<dyn Link> {
    soon("a connection", db.connect(&db.server().url())).await.expect("a connection")
}

async fn run(link: &mut Box<dyn Link>, statement: &str) -> Ran {
    soon(statement, link.run(statement)).await.unwrap_or_else(|e| panic!("{statement}: {e}"))
}

async fn account(page: &Page, link: &mut Box<dyn Link>) {
    let table = page.table("accounts");
    run(link, &format!("CREATE TABLE {table} (id INT PRIMARY KEY, balance INT NOT NULL)")).await;
    run(link, &page.statement("ALTER TABLE accounts", 0, 0)).await;
}

async fn balance(page: &Page, link: &mut Box<dyn Link>) -> String {
    run(link, &format!("SELECT balance, fence FROM {}", page.table("accounts"))).await.rows.join(",")
}

pub async fn a_column_beside_the_data_refuses_a_late_writer<D: Database>(db: D) {
    let (page, mut link) = (Page::read(), connect(db).await);
    account(&page, &mut link).await;
    run(&mut link, &format!("INSERT INTO {} (id, balance) VALUES (7, 100)", page.table("accounts"))).await;
    let write = |token, new| page.statement("UPDATE accounts SET balance", token, new);
    let stamp = |token| {
        let whole = page.statement("RETURNING balance", token, 0);
        // Not every database can update and read in one.
        if D::Server::RETURNING { whole } else { whole.replace("RETURNING balance", "") }
    };
    assert_eq!(run(&mut link, &write(33, 90)).await.changed, 1);
    let stamped = run(&mut link, &stamp(34)).await;
    assert_eq!((stamped.changed, stamped.rows.len()), (1, usize::from(D::Server::RETURNING)));
    // The first holder is late, whatever it tries.
    assert_eq!(run(&mut link, &write(33, 10)).await.changed, 0);
    assert_eq!(run(&mut link, &stamp(33)).await, Ran::default());
    assert_eq!(balance(&page, &mut link).await, "90|34");
    // One holder writes as often as it likes, the same too.
    for _ in 0..2 {
        assert_eq!(run(&mut link, &write(34, 80)).await.changed, 1);
    }
    assert_eq!(balance(&page, &mut link).await, "80|34");
}

pub async fn an_insert_or_replace_refuses_a_late_writer<D: Database>(db: D) {
    let (page, mut link) = (Page::read(), connect(db).await);
    account(&page, &mut link).await;
    let words = if D::Server::RETURNING { "ON CONFLICT" } else { "ON DUPLICATE KEY" };
    let put = |token, new| page.statement(words, token, new);
    for (token, new, then) in [(33, 90, "90|33"), (34, 80, "80|34"), (33, 10, "80|34"), (34, 70, "70|34")] {
        run(&mut link, &put(token, new)).await;
        assert_eq!(balance(&page, &mut link).await, then, "after {new} with token {token}");
    }
}

pub async fn a_fence_of_its_own_guards_a_whole_transaction<D: Database>(db: D) {
    let (page, mut a, mut b) = (Page::read(), connect(db).await, connect(db).await);
    let table = page.table("fences");
    run(&mut a, &format!("CREATE TABLE {table} (resource VARCHAR(64) PRIMARY KEY, token BIGINT NOT NULL)"))
        .await;
    run(&mut a, &format!("INSERT INTO {table} VALUES ('orders', 0)")).await;
    let fence = |token| page.statement("UPDATE fences", token, 0);
    run(&mut a, "BEGIN").await;
    assert_eq!(run(&mut a, &fence(33)).await.changed, 1);
    // The later holder waits until the transaction of the earlier one is over.
    let later = fence(34);
    let mut stamp = tokio::spawn(async move { run(&mut b, &later).await.changed });
    not_yet("the later holder is past the fence", &mut stamp).await;
    run(&mut a, "COMMIT").await;
    assert_eq!(soon("the later holder", stamp).await.expect("a task"), 1);
    run(&mut a, "BEGIN").await;
    assert_eq!(run(&mut a, &fence(33)).await.changed, 0);
    run(&mut a, "ROLLBACK").await;
}
