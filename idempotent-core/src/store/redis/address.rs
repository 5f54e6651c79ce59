//! What a URL names, and how a connection to it is made.

use std::{fmt, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsMode,
    cluster::ClusterClientBuilder,
    io::tcp::TcpSettings,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};

use super::wire::Wire;

/// How many commands may be on their way to a server before a caller waits for its turn to write.
const BUFFER: usize = 1024;
/// How often a cluster's connection follows a key that moved.
const CLUSTER_RETRIES: u32 = 4;
const SENTINEL_PORT: u16 = 26379;

/// One server, a master that Sentinels know, or a cluster.
pub(super) enum Address {
    Server(Box<Client>),
    Sentinels(Box<Sentinels>),
    Cluster(Vec<ConnectionInfo>),
}

pub(super) struct Sentinels {
    service: String,
    server: ConnectionInfo,
    sentinels: Vec<ConnectionInfo>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(InvalidUrl::Scheme)?;
        let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if scheme != "redis" && scheme != "rediss" {
            return Err(InvalidUrl::Scheme);
        }
        if scheme == "rediss" {
            prepare_tls()?;
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let node = |user: &str, host: &str, path: &str| {
            let node = format!("{scheme}://{user}{host}{path}").into_connection_info().map_err(InvalidUrl::Part)?;
            Ok(node.set_tcp_settings(tcp()))
        };
        match kind {
            "" => {
                let client = Client::open(node(user, hosts, path)?).map_err(InvalidUrl::Part)?;
                Ok(Self::Server(Box::new(client)))
            }
            "cluster" => {
                let nodes: Result<_, _> = hosts.split(',').map(|host| node(user, host, path)).collect();
                Ok(Self::Cluster(nodes?))
            }
            "sentinel" => {
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                let (service, db) =
                    path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_matches('/'), ""));
                if service.is_empty() {
                    return Err(InvalidUrl::NoService);
                }
                let sentinel_user = sentinel_user(query)?;
                let sentinels: Result<_, _> =
                    hosts.split(',').map(|host| node(&sentinel_user, &with_port(host, SENTINEL_PORT), "")).collect();
                let server = node(user, "master", &format!("/{db}"))?;
                Ok(Self::Sentinels(Box::new(Sentinels { service: service.to_owned(), server, sentinels: sentinels? })))
            }
            _ => Err(InvalidUrl::Scheme),
        }
    }

    /// Makes a connection that the present runtime drives.
    pub(super) async fn open(&self, connecting: Duration, responding: Duration) -> Result<Wire, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connecting))
            .set_response_timeout(Some(responding))
            .set_pipeline_buffer_size(BUFFER);
        match self {
            Self::Server(client) => {
                Ok(Wire::Server(client.get_multiplexed_async_connection_with_config(&config).await?))
            }
            Self::Sentinels(sentinels) => {
                // The client keeps its connections to the Sentinels, which end with the runtime: each opening has its own.
                let mut client = sentinels.client()?.build()?;
                Ok(Wire::Server(client.get_async_connection_with_config(&config).await?))
            }
            Self::Cluster(nodes) => {
                let client = ClusterClientBuilder::new(nodes.clone())
                    .tcp_settings(tcp())
                    .retries(CLUSTER_RETRIES)
                    .connection_timeout(connecting)
                    .response_timeout(responding)
                    .overall_response_timeout(Some(responding))
                    .build()?;
                Ok(Wire::Cluster(client.get_async_connection().await?))
            }
        }
    }
}

impl Sentinels {
    fn client(&self) -> Result<SentinelClientBuilder, RedisError> {
        let addresses: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
        let settings = self.server.redis_settings();
        let mut client = SentinelClientBuilder::new(addresses, &self.service, SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp())
            .set_client_to_redis_db(settings.db());
        if matches!(self.server.addr(), ConnectionAddr::TcpTls { .. }) {
            client = client.set_client_to_redis_tls_mode(TlsMode::Secure);
            client = client.set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(username) = settings.username() {
            client = client.set_client_to_redis_username(username);
        }
        if let Some(password) = settings.password() {
            client = client.set_client_to_redis_password(password);
        }
        let settings = self.sentinels.first().map(ConnectionInfo::redis_settings);
        if let Some(username) = settings.and_then(|settings| settings.username()) {
            client = client.set_client_to_sentinel_username(username);
        }
        if let Some(password) = settings.and_then(|settings| settings.password()) {
            client = client.set_client_to_sentinel_password(password);
        }
        Ok(client)
    }
}

/// Small requests are sent at once: waiting for more of them costs tens of milliseconds.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// The `user:password@` of the Sentinels, from the URL's query.
fn sentinel_user(query: &str) -> Result<String, InvalidUrl> {
    let (mut username, mut password) = ("", None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel_username", value)) => username = value,
            Some(("sentinel_password", value)) => password = Some(value),
            _ => return Err(InvalidUrl::Query),
        }
    }
    Ok(password.map_or(String::new(), |password| format!("{username}:{password}@")))
}

#[cfg(feature = "redis-tls")]
fn prepare_tls() -> Result<(), InvalidUrl> {
    use rustls::crypto::{CryptoProvider, ring};
    // rustls takes the one provider that is compiled in, and panics where there are several and the program names none.
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, with a provider that does as well.
        let _ = ring::default_provider().install_default();
    }
    Ok(())
}

#[cfg(not(feature = "redis-tls"))]
fn prepare_tls() -> Result<(), InvalidUrl> {
    Err(InvalidUrl::TlsNotCompiledIn)
}

/// Why a URL names no server. It shows nothing of the URL, which can hold a password.
#[derive(Debug)]
pub(super) enum InvalidUrl {
    Scheme,
    #[cfg_attr(feature = "redis-tls", expect(dead_code, reason = "it is compiled in"))]
    TlsNotCompiledIn,
    NoService,
    Query,
    Part(RedisError),
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => {
                "the URL starts with none of `redis://`, `redis+sentinel://`, `redis+cluster://`, nor with `rediss` in their place"
            }
            Self::TlsNotCompiledIn => "`rediss` needs the Cargo feature `redis-tls`, which this program was built without",
            Self::NoService => "a `redis+sentinel://` URL names the master after its hosts, as in `redis+sentinel://host/name`",
            Self::Query => {
                "a `redis+sentinel://` URL takes `sentinel_username` and `sentinel_password` in its query, and nothing else"
            }
            Self::Part(_) => "the URL cannot be read",
        })
    }
}

impl std::error::Error for InvalidUrl {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Part(error) => Some(error),
            Self::Scheme | Self::TlsNotCompiledIn | Self::NoService | Self::Query => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_url_names_hosts_master_and_both_passwords() {
        let url =
            "redis+sentinel://me:p%40ss@one,two:5000,[::1]/payments/3?sentinel_password=s%2Fp&sentinel_username=you";
        let Address::Sentinels(sentinels) = Address::parse(url).unwrap() else { panic!("no Sentinels") };
        assert_eq!(sentinels.service, "payments");
        let server = sentinels.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("me"), Some("p@ss"), 3));
        let of = |at: usize| (sentinels.sentinels[at].addr().to_string(), sentinels.sentinels[at].redis_settings());
        assert_eq!([of(0).0, of(1).0, of(2).0], ["one:26379", "two:5000", "::1:26379"]);
        assert_eq!((of(0).1.username(), of(0).1.password()), (Some("you"), Some("s/p")));
    }

    #[test]
    fn a_cluster_url_names_its_nodes() {
        let Address::Cluster(nodes) = Address::parse("redis+cluster://:secret@one:7000,two").unwrap() else {
            panic!("no cluster")
        };
        let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        assert_eq!(addresses, ["one:7000", "two:6379"]);
        assert!(nodes.iter().all(|node| node.redis_settings().password() == Some("secret")));
        assert!(nodes.iter().all(|node| node.tcp_settings().nodelay()));
    }
}
