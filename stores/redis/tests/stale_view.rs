//! A node of a cluster that is disconnected from the others and reports an outdated view.
#![allow(clippy::indexing_slicing, reason = "helpers of tests are tests")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotent_core::store::Store;
use idempotent_redis::{RedisStore, internals::with_options};
use redis::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::helpers::{complete, describe, key, open_store, request};
use test_support::servers::redis::{Cluster, Server, wait_until};

/// The slots of each master, and its port.
fn masters(node: &Server) -> Vec<(i64, i64, u16)> {
    let ranges: Vec<Vec<Value>> = node.command("CLUSTER SLOTS");
    let range = |range: Vec<Value>| {
        let range = Value::Array(range.into_iter().take(3).collect());
        let (first, last, (_, port, ..)): (_, _, (String, _, Value, Value)) =
            redis::from_redis_value(range).unwrap();
        (first, last, port)
    };
    ranges.into_iter().map(range).collect()
}

fn epoch(node: &Server) -> u64 {
    let info: String = node.command("CLUSTER INFO");
    info.lines()
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"))
        .unwrap()
        .parse()
        .unwrap()
}

/// Starts a server that permanently responds with this node's current view. Returns its port.
async fn stale_copy(node: &Server) -> u16 {
    let info = format!("cluster_state:ok\r\ncluster_current_epoch:{}\r\n", epoch(node));
    let info = format!("${}\r\n{info}\r\n", info.len());
    let masters = masters(node);
    let range = |(first, last, port)| {
        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
    };
    let slots =
        format!("*{}\r\n{}", masters.len(), masters.into_iter().map(range).collect::<String>());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(respond(client, info.clone(), slots.clone()));
        }
    });
    port
}

async fn respond(client: TcpStream, info: String, slots: String) {
    let (read, mut write) = client.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let response = match line.as_str() {
            "INFO" => &info,
            "SLOTS" => &slots,
            // The commands with which the client introduces itself when it connects.
            "SETINFO" => "+OK\r\n",
            _ => continue,
        };
        if write.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A prefix of keys that a node serves.
fn prefix(node: &Server) -> String {
    let mut client = node.client().get_connection().unwrap();
    let mut has = |key: &String| redis::cmd("EXISTS").arg(key).query::<u64>(&mut client).is_ok();
    (0..).map(|n| format!("{{{n}}}")).find(|key| has(key)).unwrap()
}

/// Fails if the store uses a replaced master again because a node that was disconnected before the
/// replacement still names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_ignores_a_node_with_a_stale_view() {
    let mut cluster = Cluster::replicated();
    let replica_of = |cluster: &Cluster, master: usize| {
        let port = cluster.0.get(master).unwrap().port.to_string();
        cluster.0.iter().position(|node| node.info("master_port").as_ref() == Some(&port)).unwrap()
    };
    let [lost, replaced] = [0, 1];
    let [lost_too, new] = [lost, replaced].map(|master| replica_of(&cluster, master));
    // A replica that had the highest epoch would take over without a new epoch.
    let _: String = cluster.0[lost].command("CLUSTER BUMPEPOCH");
    wait_until("all nodes know the epoch", || {
        cluster.0.iter().all(|node| epoch(node) == epoch(&cluster.0[lost]))
    });
    let (before, old) = (epoch(&cluster.0[lost]), cluster.0[replaced].port);
    let stale = stale_copy(&cluster.0[lost]).await;
    let _: () = cluster.0[new].command("CLUSTER FAILOVER TAKEOVER");
    wait_until("every node knows the new master", || {
        cluster
            .0
            .iter()
            .all(|node| epoch(node) > before && masters(node).iter().all(|(.., port)| *port != old))
    });
    let store = open_store(&format!("{},127.0.0.1:{stale}", cluster.url())).await;
    let [moved, gone] = [new, lost].map(|node| {
        with_options(&store, &RedisStore::options().key_prefix(&prefix(&cluster.0[node])))
    });
    for node in [replaced, lost, lost_too] {
        cluster.0[node].kill();
    }
    let (began, mut passed) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(10) {
        // An unreachable master makes the store look the slots up again.
        gone.claim(&key(), &request()).await.unwrap_err();
        match complete(&moved, &Bytes::new()).await {
            Ok(_) => passed += 1,
            // On a busy machine calls may fail, but not because the old master's port was used.
            Err(error) => assert!(
                !describe(&error).contains("refused"),
                "{passed} passed, then: {}",
                describe(&error)
            ),
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(passed > 0);
}
