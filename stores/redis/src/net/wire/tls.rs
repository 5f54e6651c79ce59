//! Encrypted connections.

use std::{io, sync::Arc};

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use rustls_native_certs::load_native_certs;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::stream::WatchedStream;
use crate::error::CallFailure;

/// Encrypts a connection to a host, whose certificate the machine must trust.
pub(crate) async fn encrypt(
    host: &str,
    stream: WatchedStream,
) -> Result<TlsStream<WatchedStream>, CallFailure> {
    let encrypted = async {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut loaded = load_native_certs();
        if let Some(error) = loaded.errors.pop() {
            return Err(io::Error::other(error));
        }
        let mut roots = RootCertStore::empty();
        for certificate in loaded.certs {
            roots.add(certificate).map_err(io::Error::other)?;
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    encrypted.await.map_err(|error| CallFailure::from_connect(error.into()))
}
