//! The floor: INSERT and DELETE of one row by its key, prepared, by the drivers that Leasehold uses and over as many connections.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Clock;
use mysql_async::prelude::Queryable;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::server::Server;
use crate::Done;
use crate::measure::nanos;
use crate::processes::{OtherSide, answer};

/// As many connections as a session of Leasehold has.
const POOL: usize = 4;

/// How often somebody looks who polls.
const POLL: Duration = Duration::from_millis(100);

/// What stands in the row besides its key: as long as the ids of an entry and a session.
const OWNER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Connections with both statements prepared.
pub(crate) struct Floor {
    links: Vec<Arc<Link>>,
}

enum Link {
    /// One statement at a time.
    Mysql(Mutex<(mysql_async::Conn, mysql_async::Statement, mysql_async::Statement)>),
    /// Statements follow each other without waiting for answers.
    Postgres(tokio_postgres::Client, tokio_postgres::Statement, tokio_postgres::Statement),
}

impl Floor {
    pub(crate) async fn connect(server: &Server) -> Done<Floor> {
        let mut links = Vec::with_capacity(POOL);
        for _ in 0..POOL {
            links.push(Arc::new(Link::connect(server.kind(), &server.url()).await?));
        }
        Ok(Floor { links })
    }

    /// Each task inserts and deletes a row so many times.
    pub(crate) fn insert_and_delete(&self, runtime: &Runtime, tasks: usize, each: usize) -> Done {
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let link = self.links[task % POOL].clone();
                runtime.spawn(async move {
                    let name = format!("orders/{task}");
                    for _ in 0..each {
                        link.insert(&name).await.map_err(|e| e.to_string())?;
                        link.delete(&name).await.map_err(|e| e.to_string())?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for task in running {
            runtime.block_on(task)??;
        }
        Ok(())
    }
}

impl Link {
    async fn connect(kind: &str, url: &str) -> Done<Link> {
        if kind == "mysql" {
            // By the same way as Leasehold, which does not take the server's word for where its socket is.
            let options = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url)?);
            let mut conn = mysql_async::Conn::new(options.prefer_socket(false).tcp_nodelay(true)).await?;
            conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
            conn.query_drop(
                "CREATE TABLE IF NOT EXISTS floor (name VARBINARY(255) PRIMARY KEY, owner CHAR(64) CHARACTER SET ascii)",
            )
            .await?;
            let insert = conn.prep("INSERT INTO floor (name, owner) VALUES (?, ?)").await?;
            let delete = conn.prep("DELETE FROM floor WHERE name = ?").await?;
            return Ok(Link::Mysql(Mutex::new((conn, insert, delete))));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS floor (name text COLLATE \"C\" PRIMARY KEY, owner text)",
            )
            .await?;
        let insert = client.prepare("INSERT INTO floor (name, owner) VALUES ($1, $2)").await?;
        let delete = client.prepare("DELETE FROM floor WHERE name = $1").await?;
        Ok(Link::Postgres(client, insert, delete))
    }

    async fn insert(&self, name: &str) -> Done {
        match self {
            Link::Mysql(link) => {
                let (conn, insert, _) = &mut *link.lock().await;
                Ok(conn.exec_drop(&*insert, (name, OWNER)).await?)
            }
            Link::Postgres(client, insert, _) => {
                client.execute(insert, &[&name, &OWNER]).await?;
                Ok(())
            }
        }
    }

    async fn delete(&self, name: &str) -> Done {
        match self {
            Link::Mysql(link) => {
                let (conn, _, delete) = &mut *link.lock().await;
                Ok(conn.exec_drop(&*delete, (name,)).await?)
            }
            Link::Postgres(client, _, delete) => {
                client.execute(delete, &[&name]).await?;
                Ok(())
            }
        }
    }
}

/// Nanoseconds from before a row is deleted to when another process, which polls, has inserted its own.
pub(crate) fn hand_offs_by_polling(runtime: &Runtime, server: &Server, times: usize) -> Done<Vec<f64>> {
    let link = runtime.block_on(Link::connect(server.kind(), &server.url()))?;
    let mut other = OtherSide::start(&format!("poll-{}", server.kind()), &server.url())?;
    let mut latencies = Vec::with_capacity(times);
    for n in 0..times {
        runtime.block_on(link.insert("polled"))?;
        other.go()?;
        // It has begun, and is somewhere between two looks.
        other.entered()?;
        std::thread::sleep(POLL * (n as u32 * 7 % 10) / 10);
        let began = Clock::system().now();
        runtime.block_on(link.delete("polled"))?;
        latencies.push(nanos(other.entered()?.since(began)));
    }
    Ok(latencies)
}

/// What the other process does.
pub(crate) fn poll(kind: &str, url: &str) -> Done {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let link = runtime.block_on(Link::connect(kind, url))?;
    answer(|| {
        println!("{}", Clock::system().now().0);
        runtime.block_on(async {
            while link.insert("polled").await.is_err() {
                sleep(POLL).await;
            }
            let entered = Clock::system().now();
            link.delete("polled").await?;
            Ok(entered)
        })
    })
}
