//! Reads of items. All are strongly consistent, except those of the index.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;

use super::{
    calls::{Response, Table},
    refusal::Refusal,
    writes::key_of,
};
use crate::{
    error::CallFailure,
    item::{Item, bytes, names},
    service_time::Now,
};

/// How many items one request may read.
const BATCH: usize = 100;
/// How many batches are read at the same time.
const CONCURRENT_BATCHES: usize = 4;
/// How often what the service has not read is asked for, and the pause before, which grows.
const ROUNDS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(20);

/// How many reads are sent at most to find out the time.
const READS_OF_TIME: usize = 6;

/// What a query of the index asks for: the entries under `hash`, from `from` on.
#[derive(Clone, Debug)]
pub(crate) struct Queried {
    pub(crate) hash: String,
    /// The least `first_seen`.
    pub(crate) from: Option<u64>,
    /// Whether the largest `first_seen` comes first.
    pub(crate) latest_first: bool,
    /// The last entry of the previous page.
    pub(crate) after: Option<Item>,
    pub(crate) limit: Option<i32>,
}

/// A part of a scan: the items, and where the next part begins.
pub(crate) struct Part {
    pub(crate) items: Vec<Item>,
    pub(crate) next: Option<Item>,
}

impl Table {
    /// The time of the service, which reads tell if no recent response did. Several of them bound
    /// it closely enough also if each takes long.
    pub(crate) async fn now(&self, key: &[u8]) -> Result<Now, CallFailure> {
        for _ in 0..READS_OF_TIME {
            if let Some(now) = self.time.now() {
                return Ok(now);
            }
            self.get(key).await?;
            if !self.time.is_known() {
                return Err(CallFailure::NoDate);
            }
        }
        self.time.now().ok_or(CallFailure::ResponseTimeout)
    }

    /// Reads an item.
    pub(crate) async fn get(&self, key: &[u8]) -> Result<Option<Item>, CallFailure> {
        let get = self.client.get_item().table_name(&*self.name);
        let get = get.key(names::ID, bytes(key)).consistent_read(true);
        let get = |probe| get.clone().customize().interceptor(probe).send();
        Ok(done(self.call(get).await?)?.item)
    }

    /// Reads those of these items that exist, in no order.
    pub(crate) async fn get_many(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Item>, CallFailure> {
        let batches: Vec<Vec<Vec<u8>>> = keys.chunks(BATCH).map(<[_]>::to_vec).collect();
        let batches = batches.into_iter().map(|batch| self.get_batch(batch));
        let batches: Vec<_> = stream::iter(batches).buffered(CONCURRENT_BATCHES).collect().await;
        let mut items = Vec::new();
        for batch in batches {
            items.extend(batch?);
        }
        Ok(items)
    }

    async fn get_batch(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Item>, CallFailure> {
        let (mut items, mut rounds) = (Vec::new(), 0);
        let mut keys: Vec<Item> = keys.iter().map(|key| key_of(key)).collect();
        // A response has at most 16 MB, and less if the service is throttling.
        while !keys.is_empty() {
            let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
            let wanted = wanted.build().map_err(CallFailure::not_built)?;
            let get = self.client.batch_get_item().request_items(&*self.name, wanted);
            let get = |probe| get.clone().customize().interceptor(probe).send();
            let read = done(self.call(get).await?)?;
            items.extend(read.responses.into_iter().flatten().flat_map(|(_, items)| items));
            let left = read.unprocessed_keys.into_iter().flatten();
            keys = left.flat_map(|(_, left)| left.keys).collect();
            rounds += 1;
            if !keys.is_empty() {
                if rounds == ROUNDS {
                    return Err(CallFailure::ResponseTimeout);
                }
                sleep(PAUSE * rounds).await;
            }
        }
        Ok(items)
    }

    /// Reads one page of keys of the index.
    pub(crate) async fn query(&self, wanted: Queried) -> Result<Part, CallFailure> {
        let condition = match wanted.from {
            Some(_) => "#h = :h AND #t >= :t",
            None => "#h = :h",
        };
        let query = self.client.query().table_name(&*self.name).index_name(names::WATCHED);
        let mut query = query
            .key_condition_expression(condition)
            .expression_attribute_names("#h", names::WATCHED)
            .expression_attribute_values(":h", AttributeValue::S(wanted.hash))
            .scan_index_forward(!wanted.latest_first)
            .set_exclusive_start_key(wanted.after)
            .set_limit(wanted.limit);
        if let Some(from) = wanted.from {
            query = query
                .expression_attribute_names("#t", names::FIRST_SEEN)
                .expression_attribute_values(":t", AttributeValue::N(from.to_string()));
        }
        let query = |probe| query.clone().customize().interceptor(probe).send();
        let page = done(self.call(query).await?)?;
        Ok(Part { items: page.items.unwrap_or_default(), next: page.last_evaluated_key })
    }

    /// Reads these attributes of up to `limit` items of the table, after the item `after`.
    pub(crate) async fn scan(
        &self,
        attributes: &[&str],
        (after, limit): (Option<&[u8]>, Option<i32>),
    ) -> Result<Part, CallFailure> {
        let projection: Vec<_> = attributes.iter().map(|name| format!("#{name}")).collect();
        let named = attributes.iter().map(|name| (format!("#{name}"), (*name).to_owned()));
        let scan = self.client.scan().table_name(&*self.name).consistent_read(true);
        let scan = scan
            .projection_expression(projection.join(", "))
            .set_expression_attribute_names(Some(named.collect()))
            .set_exclusive_start_key(after.map(key_of))
            .set_limit(limit);
        let scan = |probe| scan.clone().customize().interceptor(probe).send();
        let page = done(self.call(scan).await?)?;
        Ok(Part { items: page.items.unwrap_or_default(), next: page.last_evaluated_key })
    }
}

/// What a request without a condition returned.
pub(crate) fn done<T, E: Refusal>(response: Response<Result<T, E>>) -> Result<T, CallFailure> {
    // Such a request is never refused.
    response.value.map_err(|_| CallFailure::Contended)
}
