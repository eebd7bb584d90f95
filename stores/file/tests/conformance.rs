//! The whole suite on the file store.

leasehold_testkit::conformance!(leasehold_testkit::InFolder(leasehold_file::FileStore::at));
