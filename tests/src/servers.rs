//! The servers of the suites, as environment variables name them.
//!
//! A variable that is set asks for its server: tests that need the server fail if the server is
//! missing. Without the variable these tests are reported as ignored.

/// A kind of server, and the variable that holds its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestServer {
    /// The environment variable.
    pub variable: &'static str,
    /// Why tests are ignored without the variable.
    pub ignored_because: &'static str,
}

/// One node of Cassandra: `host:port`.
pub const CASSANDRA: TestServer =
    TestServer { variable: "VVM_TEST_CASSANDRA", ignored_because: "VVM_TEST_CASSANDRA is not set" };

/// Three nodes of one Cassandra cluster: `host:port,host:port,host:port`.
pub const CASSANDRA_CLUSTER: TestServer = TestServer {
    variable: "VVM_TEST_CASSANDRA_CLUSTER",
    ignored_because: "VVM_TEST_CASSANDRA_CLUSTER is not set",
};

/// DynamoDB Local: `http://host:port`.
pub const DYNAMODB: TestServer =
    TestServer { variable: "VVM_TEST_DYNAMODB", ignored_because: "VVM_TEST_DYNAMODB is not set" };

impl TestServer {
    /// The address of the server. `None` if the server was not asked for.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "suites find their servers by variables")]
    pub fn address(self) -> Option<String> {
        std::env::var(self.variable).ok()
    }
}
