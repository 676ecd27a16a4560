//! Models held to what their own libraries say.

mod fixture;

mod bert;
mod built_in;
mod http;
