//! The one list of the scenarios of SQL stores. What stands here runs on every one of them, by name.

/// Clear errors for bad input, rows that people can read, a late writer that changes nothing.
#[macro_export]
macro_rules! sql_promises {
    ($database:expr) => {
        $crate::sql_tests! { $database, promises {
            one_who_may_not_create_tables_is_told_what_to_do
            tables_that_were_made_by_hand_are_enough
            missing_tables_are_an_error_where_none_may_be_created
            tables_of_another_version_are_refused
            a_database_that_can_only_be_read_says_so
            a_server_that_is_not_there_is_unavailable_in_time
            a_statement_that_the_server_cuts_short_is_tried_again
            people_can_read_who_holds_and_who_waits
            a_late_writer_changes_nothing
            a_place_lasts_as_long_as_it_is_renewed
            one_entry_that_is_asked_for_twice_at_once_has_one_place
            whoever_waits_is_woken_and_need_not_look
            a_lease_that_ended_is_not_renewed_though_nobody_took_the_lock
            rows_of_locks_that_nobody_uses_go_away_and_others_stay
            a_holder_that_came_before_it_could_be_told_is_told_all_the_same
            a_watcher_that_came_before_it_could_be_told_sees_all
            a_session_ends_though_a_request_of_it_is_not_polled
        } }
    };
}

/// The quick statements, against the rule.
#[macro_export]
macro_rules! sql_histories {
    ($database:expr) => {
        $crate::sql_tests! { $database, histories {
            random_histories_agree_with_the_rule
            random_histories_in_company_agree_with_the_rule
        } }
    };
}

/// Many claims and releases at once, which share transactions.
#[macro_export]
macro_rules! sql_company {
    ($database:expr) => {
        $crate::sql_tests! { $database, company {
            many_at_once_share_transactions
            one_that_fails_fails_alone
            who_finds_a_lock_taken_waits_and_keeps_nobody_up
            claims_and_releases_that_stand_still_keep_nobody_up
            claims_that_are_given_up_leave_nothing
            crowds_that_want_the_same_names_do_not_block_each_other
            crowds_get_over_connections_that_end
        } }
    };
}

/// Servers that die, connections that break, many clients at once.
#[macro_export]
macro_rules! sql_faults {
    ($database:expr) => {
        $crate::sql_tests! { $database, faults {
            a_counter_stays_exact_while_the_server_is_killed_again_and_again
            a_counter_stays_exact_while_connections_are_ended_by_the_server
            a_counter_stays_exact_through_every_fault_of_the_network
            a_server_that_stands_still_delays_and_breaks_nothing
            sixty_four_clients_on_eight_names_see_no_error
        } }
    };
}

/// The statements of the page about fencing.
#[macro_export]
macro_rules! sql_fencing {
    ($database:expr) => {
        $crate::sql_tests! { $database, fencing {
            a_column_beside_the_data_refuses_a_late_writer
            an_insert_or_replace_refuses_a_late_writer
            a_fence_of_its_own_guards_a_whole_transaction
        } }
    };
}

/// What the store finds out about its database.
#[macro_export]
macro_rules! sql_doctor {
    ($database:expr) => {
        $crate::sql_tests! { $database, doctor {
            a_database_in_order_is_good
            a_database_without_tables_is_a_note_and_stays_without
            a_missing_table_is_a_danger
            a_missing_index_is_a_warning
            a_user_without_rights_is_in_danger
        } }
    };
}

/// Servers that must prove who they are.
#[macro_export]
macro_rules! sql_encryption {
    ($database:expr) => {
        $crate::sql_tests! { $database, encryption {
            an_encrypted_server_must_prove_who_it_is
        } }
    };
}

/// Clients that die.
#[macro_export]
macro_rules! sql_deaths {
    ($database:expr) => {
        $crate::sql_tests! { $database, deaths {
            a_dead_holders_successor_enters_when_its_lease_ends
        } }
    };
}

/// Locks that end with the user's own transaction.
#[macro_export]
macro_rules! sql_transactions {
    ($database:expr) => {
        $crate::sql_tests! { $database, transactions {
            a_counter_in_a_table_stays_exact
            the_lock_ends_with_the_commit_the_rollback_and_the_connection
            whoever_waits_gets_in_when_the_other_commits
            names_are_told_apart_whatever_their_case_and_length
            a_prefix_has_locks_of_its_own
            it_is_another_lock_than_a_mutex_of_that_name
            many_names_in_one_order_never_deadlock
            the_setup_can_be_repeated_while_a_lock_is_held
        } }
    };
}

/// One `#[test]` for each scenario.
#[doc(hidden)]
#[macro_export]
macro_rules! sql_tests {
    ($database:expr, $group:ident { $($scenario:ident)* }) => {
        $(#[test]
        fn $scenario() {
            $crate::sql::run($database, stringify!($scenario), $crate::sql::$group::$scenario);
        })*
    };
}
