//! The Redis store, on servers of its own. `REDIS_URL` names another server for the tests that do not have to stop or configure it.

#![expect(unreachable_pub, reason = "the servers are for the tests of other crates too")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod redis {
    mod conforms;
    mod connections;
    mod cuts;
    mod damage;
    mod failovers;
    mod losses;
    mod outages;
    mod privileges;
    mod promises;
    mod promotion;
    #[path = "../servers"]
    mod proxied {
        pub mod cuts;
        pub mod longest;
        pub mod proxy;
        pub mod timing;
        pub mod without_runtime;
    }
    mod replicas;
    mod restarts;
    #[path = "../servers/redis.rs"]
    mod server;
    mod stale;
    mod subject;
    mod topologies;
    mod work;
}
