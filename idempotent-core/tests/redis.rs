//! The Redis store, on servers of its own. `REDIS_URL` names another server for the tests that do not have to stop or configure it.

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
