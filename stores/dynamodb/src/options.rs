//! What is set before a store is opened.

use std::time::Duration;

/// The options of a [`DynamoDbStore`](crate::DynamoDbStore), from
/// [`DynamoDbStore::options`](crate::DynamoDbStore::options).
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use std::time::Duration;
///
/// use idempotent_dynamodb::DynamoDbStore;
///
/// let store = DynamoDbStore::options()
///     .key_prefix("payments:")
///     .call_timeout(Duration::from_secs(3))
///     .connect("dynamodb://eu-central-1/idempotency")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a store is opened with them"]
pub struct DynamoDbOptions {
    pub(crate) key_prefix: String,
    pub(crate) response_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) single_writer_region: bool,
}

impl Default for DynamoDbOptions {
    fn default() -> Self {
        Self {
            key_prefix: String::new(),
            response_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_secs(4),
            single_writer_region: false,
        }
    }
}

impl DynamoDbOptions {
    /// Sets what the `id` of each item begins with; the default is nothing. Stores with different
    /// prefixes share a table without seeing each other's records. A prefix contains no NUL.
    pub fn key_prefix(mut self, prefix: &str) -> Self {
        self.key_prefix = prefix.replace('\0', "");
        self
    }

    /// Sets how long a request waits for the service's response before it is sent again; the
    /// default is one second.
    pub fn response_timeout(mut self, within: Duration) -> Self {
        self.response_timeout = within;
        self
    }

    /// Sets for how long a call is sent again if the service throttles it, fails or does not
    /// respond; the default is 4 seconds. After that, the call fails with a transient error.
    pub fn call_timeout(mut self, within: Duration) -> Self {
        self.call_timeout = within;
        self
    }

    /// Accepts a global table with eventual consistency; by default, it is refused. Set this only
    /// if all processes that use the table write in the same Region: otherwise two Regions can
    /// grant the same key, and what one of them has written is lost. After a failover to another
    /// Region, operations whose records had not arrived there can run again.
    pub fn single_writer_region(mut self, only_one: bool) -> Self {
        self.single_writer_region = only_one;
        self
    }
}
