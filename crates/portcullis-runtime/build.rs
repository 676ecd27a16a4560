//! Compiles the `.proto` for the `grpc` feature, without `protoc`.

#[cfg(feature = "grpc")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "proto/portcullis/deep/v1/deep.proto";
    println!("cargo::rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure()
        .boxed(".portcullis.deep.v1.Answer.said.decided")
        .compile_fds(files)?;
    Ok(())
}

#[cfg(not(feature = "grpc"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
