//! Statements with their values.

use leasehold_sql::Cell;
use leasehold_sql::row::Sort;
use tokio_postgres::types::{ToSql, Type};

type Value = Box<dyn ToSql + Sync + Send>;

/// The values of a statement, which is written meanwhile.
#[derive(Default)]
pub(crate) struct Values(Vec<(Value, Type)>);

impl Values {
    fn add(&mut self, value: Value, sort: Type) -> String {
        self.0.push((value, sort));
        format!("${}", self.0.len())
    }

    /// Takes a text; says how the statement names it.
    pub(crate) fn text(&mut self, text: impl Into<String>) -> String {
        self.add(Box::new(text.into()), Type::TEXT)
    }

    pub(crate) fn number(&mut self, number: i64) -> String {
        self.add(Box::new(number), Type::INT8)
    }

    pub(crate) fn maybe(&mut self, number: Option<i64>) -> String {
        self.add(Box::new(number), Type::INT8)
    }

    pub(crate) fn texts(&mut self, texts: Vec<String>) -> String {
        self.add(Box::new(texts), Type::TEXT_ARRAY)
    }

    /// One value of a column.
    pub(crate) fn cell(&mut self, cell: Cell, sort: Sort) -> String {
        match (cell, sort) {
            (Cell::Text(text), _) => self.text(text),
            (Cell::Number(number), _) => self.number(number),
            (Cell::Null, Sort::Number) => self.maybe(None),
            (Cell::Null, Sort::Text(_)) => self.add(Box::new(None::<String>), Type::TEXT),
        }
    }

    /// The values of a column in many rows.
    pub(crate) fn column(&mut self, cells: Vec<Cell>, sort: Sort) -> String {
        let text = |cell| if let Cell::Text(text) = cell { Some(text) } else { None };
        let number = |cell| if let Cell::Number(number) = cell { Some(number) } else { None };
        match sort {
            Sort::Text(_) => {
                let column: Vec<Option<String>> = cells.into_iter().map(text).collect();
                self.add(Box::new(column), Type::TEXT_ARRAY)
            }
            Sort::Number => {
                let column: Vec<Option<i64>> = cells.into_iter().map(number).collect();
                self.add(Box::new(column), Type::INT8_ARRAY)
            }
        }
    }

    pub(crate) fn refs(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.0.iter().map(|(value, sort)| (&**value as &(dyn ToSql + Sync), sort.clone())).collect()
    }
}
