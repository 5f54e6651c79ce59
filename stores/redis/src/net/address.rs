//! URLs of Redis servers.

use std::time::Duration;

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

/// How long a connection is idle before the kernel sends keepalive probes, and the interval between
/// them.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the kernel waits for the acknowledgment of sent data before it closes the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);
const SENTINEL_PORT: u16 = 26379;

/// A single server, a master behind Sentinels, or a cluster.
pub(crate) enum Address {
    Server(Box<ConnectionInfo>),
    Sentinels(Box<Sentinels>),
    /// The first node in the URL, and all of them.
    Cluster(Box<ConnectionInfo>, Vec<ConnectionInfo>),
}

#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) service: String,
    server: ConnectionInfo,
    pub(crate) hosts: Vec<ConnectionInfo>,
}

impl Address {
    /// The parameters that a URL of its form can have.
    pub(crate) fn parameters(url: &str) -> &'static [&'static str] {
        if url.contains("+sentinel:") {
            &["sentinel_username", "sentinel_password"]
        } else {
            &["protocol"]
        }
    }

    pub(crate) fn parse(url: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = url.split_once("://").ok_or(InvalidAddress::Scheme)?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if scheme != "redis" && scheme != "rediss" {
            return Err(InvalidAddress::Scheme);
        }
        if scheme == "rediss" {
            prepare_tls()?;
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let node = |user: &str, host: &str, path: &str| {
            let node = format!("{scheme}://{user}{host}{path}")
                .into_connection_info()
                .map_err(InvalidAddress::of_part)?;
            Ok(node.set_tcp_settings(tcp()))
        };
        match kind {
            "" => Ok(Self::Server(Box::new(node(user, hosts, path)?))),
            "cluster" => {
                let nodes: Result<Vec<_>, _> =
                    hosts.split(',').map(|host| node(user, host, path)).collect();
                let nodes = nodes?;
                let first = nodes.first().ok_or(InvalidAddress::Scheme)?;
                Ok(Self::Cluster(Box::new(first.clone()), nodes))
            }
            "sentinel" => {
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                let (service, db) = path
                    .trim_start_matches('/')
                    .split_once('/')
                    .unwrap_or((path.trim_matches('/'), ""));
                if service.is_empty() {
                    return Err(InvalidAddress::NoService);
                }
                let sentinel_user = sentinel_user(query)?;
                // RESP3 allows commands on a connection that has subscriptions.
                let resp3 = |info: ConnectionInfo| {
                    let settings =
                        info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
                    info.set_redis_settings(settings)
                };
                let hosts: Result<_, _> = hosts
                    .split(',')
                    .map(|host| {
                        node(&sentinel_user, &with_port(host, SENTINEL_PORT), "").map(resp3)
                    })
                    .collect();
                let server = node(user, "master", &format!("/{db}"))?;
                Ok(Self::Sentinels(Box::new(Sentinels {
                    service: service.to_owned(),
                    server,
                    hosts: hosts?,
                })))
            }
            _ => Err(InvalidAddress::Scheme),
        }
    }

    /// What the connections to all servers of the URL share: user, database and encryption.
    pub(crate) fn template(&self) -> &ConnectionInfo {
        match self {
            Self::Server(server) => server,
            Self::Sentinels(sentinels) => &sentinels.server,
            Self::Cluster(first, _) => first,
        }
    }
}

/// A host and a port.
pub(crate) type Endpoint = (String, u16);

pub(crate) fn endpoint(info: &ConnectionInfo) -> Endpoint {
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = info.addr()
    else {
        // URLs with another kind of address are not accepted.
        return (info.addr().to_string(), 0);
    };
    (host.clone(), *port)
}

/// Connection parameters for another host, with the user, database and encryption of the template.
pub(crate) fn info_at(template: &ConnectionInfo, (host, port): &Endpoint) -> ConnectionInfo {
    let (host, port) = (host.clone(), *port);
    let addr = if let ConnectionAddr::TcpTls { insecure, tls_params, .. } = template.addr().clone()
    {
        ConnectionAddr::TcpTls { host, port, insecure, tls_params }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    template.clone().set_addr(addr)
}

/// `TCP_NODELAY`, since collecting small requests costs tens of milliseconds; and keepalives, so
/// that the kernel detects a silently lost connection even while no call is in progress.
fn tcp() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// Returns the `user:password@` of the Sentinels from the URL's query.
fn sentinel_user(query: &str) -> Result<String, InvalidAddress> {
    let (mut username, mut password) = ("", None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel_username", value)) => username = value,
            Some(("sentinel_password", value)) => password = Some(value),
            _ => return Err(InvalidAddress::Query),
        }
    }
    Ok(password.map_or(String::new(), |password| format!("{username}:{password}@")))
}

#[cfg(feature = "tls")]
fn prepare_tls() -> Result<(), InvalidAddress> {
    use rustls::crypto::{CryptoProvider, ring};
    // rustls uses the single provider that is compiled in, and panics if there are several and the
    // program has installed none.
    if CryptoProvider::get_default().is_none() {
        // Another thread may install a provider first; any provider is suitable.
        let _ = ring::default_provider().install_default();
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn prepare_tls() -> Result<(), InvalidAddress> {
    Err(InvalidAddress::TlsNotCompiledIn)
}

/// Why a URL is refused. It contains nothing of the URL, which can hold a password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidAddress {
    #[error(
        "the URL must start with `redis://`, `redis+sentinel://` or `redis+cluster://`; for TLS, \
         write `rediss` instead of `redis`"
    )]
    Scheme,
    #[cfg_attr(feature = "tls", expect(dead_code, reason = "it is compiled in"))]
    #[error("`rediss` needs the Cargo feature `redis-tls`, which this program was built without")]
    TlsNotCompiledIn,
    #[error(
        "a `redis+sentinel://` URL names the master after its hosts, \
         as in `redis+sentinel://host/name`"
    )]
    NoService,
    #[error(
        "a `redis+sentinel://` URL accepts only `sentinel_username` and `sentinel_password` in \
         its query"
    )]
    Query,
    #[error("the URL's parameter `protocol` must be `resp2` or `resp3`")]
    Protocol,
    #[error("the URL cannot be parsed")]
    Part(#[source] RedisError),
}

impl InvalidAddress {
    /// The only detail that `redis` gives is the value of the parameter `protocol`.
    fn of_part(error: RedisError) -> Self {
        if error.detail().is_some() { Self::Protocol } else { Self::Part(error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_url_names_hosts_master_and_both_passwords() {
        let url = "redis+sentinel://me:p%40ss@one,two:5000,[::1]/payments/3\
                   ?sentinel_password=s%2Fp&sentinel_username=you";
        let Address::Sentinels(sentinels) = Address::parse(url).unwrap() else {
            panic!("no Sentinels")
        };
        assert_eq!(sentinels.service, "payments");
        let server = sentinels.server.redis_settings();
        assert_eq!(
            (server.username(), server.password(), server.db()),
            (Some("me"), Some("p@ss"), 3)
        );
        let of = |at: usize| {
            (sentinels.hosts[at].addr().to_string(), sentinels.hosts[at].redis_settings())
        };
        assert_eq!([of(0).0, of(1).0, of(2).0], ["one:26379", "two:5000", "::1:26379"]);
        assert_eq!((of(0).1.username(), of(0).1.password()), (Some("you"), Some("s/p")));
    }

    #[test]
    fn a_cluster_url_names_its_nodes() {
        let Address::Cluster(_, nodes) =
            Address::parse("redis+cluster://:secret@one:7000,two").unwrap()
        else {
            panic!("no cluster")
        };
        let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        assert_eq!(addresses, ["one:7000", "two:6379"]);
        assert!(nodes.iter().all(|node| node.redis_settings().password() == Some("secret")));
        assert!(nodes.iter().all(|node| node.tcp_settings().nodelay()));
    }
}
