//! The whole suite on the memory store.

leasehold_testkit::conformance!(leasehold_testkit::InProcess(|| Ok(leasehold_memory::Memory::new())));
