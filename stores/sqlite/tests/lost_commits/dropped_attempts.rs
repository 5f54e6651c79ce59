//! Attempts that are dropped.

use super::*;

#[tokio::test]
async fn a_dropped_attempt_commits_nothing() {
    for in_transaction in [false, true] {
        let fixture = Fixture::new(LostCommit::AfterTheCommit, in_transaction).await;
        let policy = Policy::DEFAULT.with_lease(Duration::from_millis(50));
        let Admission::Proceed(mut attempt) = fixture.begin(&policy).await else {
            panic!("the claim was rejected")
        };
        if !in_transaction {
            attempt.begin_transaction().await.unwrap();
        }
        write(&mut attempt).await;
        drop(attempt);
        assert_eq!(fixture.effects().await, 0);
        tokio::time::sleep(Duration::from_millis(60)).await;
        let number = if in_transaction { 1 } else { 2 };
        assert_eq!(
            fixture.run(&policy).await,
            (number, AttemptOutcome::Stored),
            "in transaction: {in_transaction}"
        );
        assert_eq!(fixture.effects().await, 1);
    }
}

#[tokio::test]
async fn a_completion_dropped_after_any_poll_keeps_effect_and_record_together() {
    let (mut committed, mut not) = (0, 0);
    for in_transaction in [false, true] {
        for polls in 0..10 {
            let fixture = Fixture::new(LostCommit::AfterTheCommit, in_transaction).await;
            let Admission::Proceed(mut attempt) = fixture.begin(&Policy::DEFAULT).await else {
                panic!("the claim was rejected")
            };
            if !in_transaction {
                attempt.begin_transaction().await.unwrap();
            }
            write(&mut attempt).await;
            let response =
                Recording::new(201, Vec::new(), RecordedBody::Whole(Bytes::from_static(b"done")));
            {
                let mut end = std::pin::pin!(attempt.complete(&response));
                for _ in 0..polls {
                    let poll = poll_fn(|context| Poll::Ready(end.as_mut().poll(context)));
                    if poll.await.is_ready() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            fixture.runtime.drain().await;
            // When the file can be written, no transaction is open.
            sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&fixture.pool).await.unwrap();
            let completed = matches!(fixture.state().await, Some(RecordState::Completed(_)));
            assert_eq!(
                fixture.effects().await,
                i64::from(completed),
                "in_transaction: {in_transaction}, {polls} polls"
            );
            if completed { committed += 1 } else { not += 1 }
        }
    }
    assert!(committed >= 5 && not >= 2, "{committed} committed, {not} not");
}
