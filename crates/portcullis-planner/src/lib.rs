//! A `ReAct` planner whose every step passes the gate.
//!
//! A [`Planner`] asks a [`ChatModel`], runs the [`Tool`]s that the model calls, tells it what came of them, and goes on
//! until there is an answer. With a gateway, every prompt, tool call, tool result and streamed piece is judged first;
//! without one, the same code runs behind [`Unguarded`](portcullis_runtime::Unguarded).
//!
//! ```no_run
//! use std::sync::Arc;
//! use portcullis_core::pack;
//! use portcullis_planner::{Events, OpenAiChat, OpenAiSettings, Outcome, Planner, Task, ToolError, TypedTool};
//! use portcullis_runtime::Gateway;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Search {
//!     query: String,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let model = OpenAiChat::new(OpenAiSettings::new("https://api.example.org/v1", "some-model"))?;
//! let planner = Planner::builder(Arc::new(model), Gateway::builder(pack::load_default()?.policy).build())
//!     .tool(TypedTool::new("search", "Finds pages.", |args: Search| async move {
//!         Ok::<_, ToolError>(format!("nothing about {}", args.query))
//!     }))
//!     .build()?;
//! let task = Task::new("run-1", "What is a portcullis?");
//! let finished = planner.run(task, Events::ignored(), std::future::pending()).await;
//! if let Outcome::Done { answer } = finished.outcome {
//!     println!("{answer}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`Planner`]; [`Outcome`] is how a run ends, [`Suspended`] how it waits for a person, [`Trajectory`] what
//! is left of it.
//!
//! Invariant: a tool takes a `PermittedCall`, which only the gate can give. No code here can run one unasked.
//! Invariant: nothing is judged here. The gate judges, and this crate does what it says.

mod chat;
mod drive;
mod events;
mod openai;
mod planner;
mod state;
mod tool;
mod trajectory;

pub use chat::{
    ChatModel, ChatRequest, Delta, DeltaStream, FinishReason, Message, ModelError, ToolCall,
    ToolCallDelta, ToolDefinition, Turn, TurnBuilder, Usage,
};
pub use events::{Events, RunEvent};
pub use openai::{ApiKey, OpenAiChat, OpenAiSettings, StreamReader};
pub use planner::{
    Budgets, BuildError, Finished, Outcome, Planner, PlannerBuilder, ResumeError, Said, Stopped,
    Task,
};
pub use state::Suspended;
pub use tool::{Tool, ToolError, TypedTool};
pub use trajectory::{Budget, CallRecord, End, Guarded, Step, Trajectory};

/// The guide's Rust compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/planner.md")]
struct Guide;
