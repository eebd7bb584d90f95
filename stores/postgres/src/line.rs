//! One connection, the statements that it knows, and how it runs them.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::TryStreamExt;
use leasehold_core::{Error, Kind};
use leasehold_sql::usual::Outcome;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::sql::{Statement, Values};
use crate::trouble::{Trouble, judge};
use crate::usual::Call;

/// A connection.
pub(crate) struct Line {
    pub(crate) client: Client,
    /// Statements that it knows by our names. A pooler may have lent us another one meanwhile.
    known: Mutex<HashSet<String>>,
    /// Usual statements that it knows by the protocol's names, if it leads to the server itself.
    bound: Mutex<HashMap<String, tokio_postgres::Statement>>,
    direct: AtomicBool,
}

/// What a connection can be asked to do.
pub(crate) trait Work: Sync {
    type Answer;

    fn run(&self, line: &Line) -> impl Future<Output = Result<Self::Answer, Trouble>> + Send;
}

/// One statement with its values.
pub(crate) struct Lone<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) values: &'a Values,
}

impl Work for Lone<'_> {
    type Answer = Vec<SimpleQueryRow>;

    async fn run(&self, line: &Line) -> Result<Self::Answer, Trouble> {
        let messages = line.execute(self.statement, self.values).await.map_err(judge)?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }
}

impl Work for Call<'_> {
    type Answer = Outcome;

    async fn run(&self, line: &Line) -> Result<Outcome, Trouble> {
        match line.bind(self).await {
            // There is a pooler after all.
            Err(error) if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => {
                line.direct.store(false, Ordering::Relaxed);
            }
            Err(error) => return Err(judge(error)),
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) => {}
        }
        let messages = Box::pin(line.execute(self.statement, &self.values)).await.map_err(judge)?;
        // The statement comes last: the connection may have been told first what it means.
        Ok(outcomes(&messages).pop().unwrap_or_default())
    }
}

impl Work for [Call<'_>] {
    type Answer = Vec<Outcome>;

    /// A text of several statements is one transaction.
    async fn run(&self, line: &Line) -> Result<Vec<Outcome>, Trouble> {
        let mut text = String::new();
        let mut unknown: Vec<&Statement> = self.iter().map(|call| call.statement).collect();
        unknown.sort_by(|a, b| a.name.cmp(&b.name));
        unknown.dedup_by(|a, b| a.name == b.name);
        unknown.retain(|statement| !line.known().contains(&statement.name));
        for statement in &unknown {
            text.extend([&statement.prepare, ";"]);
        }
        for call in self {
            text.extend([&call.values.execute(call.statement), ";"]);
        }
        let messages = line.client.simple_query(&text).await.map_err(|error| match error.code() {
            // A pooler has lent us another connection. Alone, each finds out what that one knows.
            Some(&SqlState::DUPLICATE_PSTATEMENT | &SqlState::INVALID_SQL_STATEMENT_NAME) => Trouble::Error(
                Error::new(Kind::Store, "the connection knows other statements").because(error),
            ),
            _ => judge(error),
        })?;
        line.known().extend(unknown.iter().map(|statement| statement.name.clone()));
        Ok(outcomes(&messages).split_off(unknown.len()))
    }
}

/// What each statement of a text did.
fn outcomes(messages: &[SimpleQueryMessage]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut told = None;
    for message in messages {
        match message {
            SimpleQueryMessage::Row(row) => told = row.get(0).and_then(|digits| digits.parse().ok()),
            SimpleQueryMessage::CommandComplete(changed) => {
                outcomes.push(Outcome { changed: *changed, told: told.take() });
            }
            _ => {}
        }
    }
    outcomes
}

impl Line {
    pub(crate) fn new(client: Client, direct: bool) -> Self {
        Line { client, known: Mutex::default(), bound: Mutex::default(), direct: AtomicBool::new(direct) }
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bound(&self) -> MutexGuard<'_, HashMap<String, tokio_postgres::Statement>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement by its name; says first what the name means if the connection doesn't know.
    async fn execute(
        &self,
        statement: &Statement,
        values: &Values,
    ) -> Result<Vec<SimpleQueryMessage>, tokio_postgres::Error> {
        let execute = values.execute(statement);
        let remembered = self.known().contains(&statement.name);
        let mut known = remembered;
        loop {
            let answer = if known {
                self.client.simple_query(&execute).await
            } else {
                self.client.simple_query(&format!("{}; {execute}", statement.prepare)).await
            };
            match answer {
                // A pooler has lent us a connection that others have used, or one that is new.
                Err(error) if !known && error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT) => known = true,
                Err(error) if known && error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => {
                    known = false
                }
                Err(error) => return Err(error),
                Ok(messages) => {
                    if !remembered {
                        self.known().insert(statement.name.clone());
                    }
                    return Ok(messages);
                }
            }
        }
    }

    /// Runs a usual statement by the protocol, which costs the server a good part less. `None` if that can't be done here.
    async fn bind(&self, call: &Call<'_>) -> Result<Option<Outcome>, tokio_postgres::Error> {
        let Some(values) = call.values.bound().filter(|_| self.direct.load(Ordering::Relaxed)) else {
            return Ok(None);
        };
        let Statement { name, text, sorts, .. } = call.statement;
        let known = self.bound().get(name).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = Box::pin(self.client.prepare_typed(text, sorts)).await?;
                self.bound().entry(name.clone()).or_insert(statement).clone()
            }
        };
        let mut rows = pin!(self.client.query_raw(&statement, values).await?);
        let mut told = None;
        while let Some(row) = rows.try_next().await? {
            told = Some(row.try_get::<_, i64>(0)?.unsigned_abs());
        }
        Ok(Some(Outcome { changed: rows.rows_affected().unwrap_or_default(), told }))
    }
}
