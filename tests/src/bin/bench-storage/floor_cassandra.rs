//! The floor of Cassandra: the bare `scylla` crate with prepared statements, used in the most
//! obvious way.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::{
        Consistency, SerialConsistency,
        batch::{Batch, BatchType},
        prepared::PreparedStatement,
    },
};

use vvm_tests::bench::BenchError;

use crate::work::{Op, Side, ccols, pkey, value};

pub(crate) struct CassandraFloor {
    session: Session,
    keyspace: String,
    put: PreparedStatement,
    get: PreparedStatement,
    insert: PreparedStatement,
    put10: Batch,
    insert32: Batch,
}

impl CassandraFloor {
    pub(crate) async fn connect(
        address: &str,
        keyspace: &str,
    ) -> Result<Arc<CassandraFloor>, BenchError> {
        let session = SessionBuilder::new().known_node(address).build().await?;
        let create = format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        );
        session.query_unpaged(create, ()).await?;
        let table = format!("{keyspace}.values");
        let create = format!(
            "CREATE TABLE IF NOT EXISTS {table} \
             (p_key blob, c_col blob, value blob, PRIMARY KEY ((p_key), c_col))"
        );
        session.query_unpaged(create, ()).await?;
        session.await_schema_agreement().await?;

        let prepare = async |text: String| {
            let mut statement = session.prepare(text).await?;
            statement.set_consistency(Consistency::Quorum);
            statement.set_serial_consistency(Some(SerialConsistency::Serial));
            Ok::<_, BenchError>(statement)
        };
        let put =
            prepare(format!("INSERT INTO {table} (p_key, c_col, value) VALUES (?, ?, ?)")).await?;
        let get =
            prepare(format!("SELECT value FROM {table} WHERE p_key = ? AND c_col = ?")).await?;
        let insert = prepare(format!(
            "INSERT INTO {table} (p_key, c_col, value) VALUES (?, ?, ?) IF NOT EXISTS"
        ))
        .await?;
        let (put10, insert32) = (batch(&put, 10), batch(&insert, 32));
        Ok(Arc::new(CassandraFloor {
            session,
            keyspace: keyspace.to_owned(),
            put,
            get,
            insert,
            put10,
            insert32,
        }))
    }

    pub(crate) async fn drop_keyspace(&self) -> Result<(), BenchError> {
        self.session.query_unpaged(format!("DROP KEYSPACE {}", self.keyspace), ()).await?;
        Ok(())
    }
}

fn batch(statement: &PreparedStatement, rows: usize) -> Batch {
    let mut batch = Batch::new(BatchType::Unlogged);
    for _ in 0..rows {
        batch.append_statement(statement.clone());
    }
    batch.set_consistency(Consistency::Quorum);
    batch.set_serial_consistency(Some(SerialConsistency::Serial));
    batch
}

fn rows(op: Op, n: u64, rows: u16) -> Vec<(Bytes, Bytes, Bytes)> {
    (0..rows).map(|row| (pkey(op, n), ccols(row), value())).collect()
}

#[async_trait]
impl Side for CassandraFloor {
    async fn run(&self, op: Op, n: u64) -> Result<(), BenchError> {
        match op {
            Op::Put => {
                self.session.execute_unpaged(&self.put, (pkey(op, n), ccols(0), value())).await?;
            }
            Op::Get => {
                let answer =
                    self.session.execute_unpaged(&self.get, (pkey(op, n), ccols(0))).await?;
                let there = answer.into_rows_result()?.maybe_first_row::<(Bytes,)>()?;
                there.ok_or("a row that was written is not there")?;
            }
            Op::PutBatch10 => {
                self.session.batch(&self.put10, rows(op, n, 10)).await?;
            }
            Op::Insert => {
                let row = (pkey(op, n), ccols(0), value());
                let answer = self.session.execute_unpaged(&self.insert, row).await?;
                applied(answer)?;
            }
            Op::WriteIf32 => applied(self.session.batch(&self.insert32, rows(op, n, 32)).await?)?,
        }
        Ok(())
    }
}

/// The first column of the answer to a conditional statement says whether it was applied.
fn applied(answer: scylla::response::query_result::QueryResult) -> Result<(), BenchError> {
    let row = answer.into_rows_result()?.first_row::<scylla::value::Row>()?;
    match row.columns.first() {
        Some(Some(scylla::value::CqlValue::Boolean(true))) => Ok(()),
        _ => Err("a fresh row was there already".into()),
    }
}
