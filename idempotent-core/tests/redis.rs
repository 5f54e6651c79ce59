//! The Redis store, on servers of its own. `REDIS_URL` names another server for the tests that do not have to stop or configure it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod redis {
    mod conforms;
    mod connections;
    mod losses;
    mod promises;
    mod replicas;
    mod server;
    mod subject;
    mod topologies;
    mod work;
}
