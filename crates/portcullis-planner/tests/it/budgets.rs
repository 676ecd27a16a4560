//! Runs that would not end by themselves.

use std::time::Duration;

use portcullis_planner::{Budget, Budgets, End, Events, ModelError, Outcome, Task};
use portcullis_runtime::Unguarded;

use crate::endpoint::Reply;
use crate::fixtures::{note, planner, run, start};

async fn with_budgets(budgets: Budgets) -> (Outcome, usize) {
    let endpoint = start([(); 8].map(|()| Reply::call([note("again")]))).await;
    let (builder, ran) = planner(&endpoint, Unguarded);
    let planner = builder.budgets(budgets).build().unwrap();
    let (finished, _) = run(&planner, "Go on.").await;
    (finished.outcome, ran.count())
}

#[tokio::test]
async fn turns_run_out() {
    let budgets = Budgets {
        iterations: 3,
        ..Budgets::default()
    };
    let outcome = Outcome::OutOfBudget(Budget::Iterations);
    assert_eq!(with_budgets(budgets).await, (outcome, 3));
}

#[tokio::test]
async fn tokens_run_out() {
    let budgets = Budgets {
        tokens: 30,
        ..Budgets::default()
    };
    let outcome = Outcome::OutOfBudget(Budget::Tokens);
    assert_eq!(with_budgets(budgets).await, (outcome, 2));
}

#[tokio::test]
async fn time_runs_out() {
    let endpoint = start([Reply::Silence]).await;
    let budgets = Budgets {
        wall_clock: Duration::from_millis(50),
        ..Budgets::default()
    };
    let planner = planner(&endpoint, Unguarded)
        .0
        .budgets(budgets)
        .build()
        .unwrap();
    let (finished, _) = run(&planner, "Hello?").await;
    assert_eq!(finished.outcome, Outcome::OutOfBudget(Budget::WallClock));
    let budget = Budget::WallClock;
    assert_eq!(finished.trajectory.end, Some(End::OutOfBudget { budget }));
}

#[tokio::test]
async fn a_caller_may_have_enough() {
    let endpoint = start([Reply::Silence]).await;
    let planner = planner(&endpoint, Unguarded).0.build().unwrap();
    let task = Task::new("run-1", "Hello?");
    let enough = tokio::time::sleep(Duration::from_millis(50));
    let finished = planner.run(task, Events::ignored(), enough).await;
    assert_eq!(finished.outcome, Outcome::Cancelled);
    assert_eq!(finished.trajectory.end, Some(End::Cancelled));
}

#[tokio::test]
async fn an_answer_without_end_is_too_large() {
    for streaming in [true, false] {
        let endpoint = start([Reply::say(["x"; 100])]).await;
        let budgets = Budgets {
            answer_bytes: 50,
            ..Budgets::default()
        };
        let builder = planner(&endpoint, Unguarded)
            .0
            .budgets(budgets)
            .streaming(streaming);
        let (finished, _) = run(&builder.build().unwrap(), "Go on.").await;
        let error = ModelError::TooLarge { limit: 50 };
        assert_eq!(finished.outcome, Outcome::Failed(error));
    }
}
