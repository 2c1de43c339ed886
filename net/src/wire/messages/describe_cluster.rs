//! DescribeCluster (60): the brokers, for administrators (KIP-700).

use crate::wire::ErrorCode;
use crate::wire::message::message;

message! {
    /// Asks for the brokers.
    #[derive(Copy)]
    pub struct DescribeClusterRequest {
        /// Whether to say what the client may do with the cluster.
        include_cluster_authorized_operations [0+]: bool,
        /// 1 brokers, 2 controllers (KIP-919).
        endpoint_type [1+]: i8 = 1,
        /// Whether to list fenced brokers too (KIP-1073).
        include_fenced_brokers [2+]: bool,
    }
}

message! {
    /// The brokers.
    pub struct DescribeClusterResponse<'a> {
        /// Milliseconds the client has to wait before its next request.
        throttle_time_ms [0+]: i32,
        /// Whether the cluster could be described.
        error_code [0+]: ErrorCode,
        /// Why not, in words.
        error_message [0+]: Option<&'a str>,
        /// What is listed, as in the request.
        endpoint_type [1+]: i8 = 1,
        /// The cluster's id.
        cluster_id [0+]: &'a str,
        /// The broker to send cluster changes to, or -1.
        controller_id [0+]: i32 = -1,
        /// The brokers.
        brokers [0+]: Vec<DescribeClusterBroker<'a>>,
        /// Bits of the operations allowed on the cluster; `i32::MIN` if not asked for.
        cluster_authorized_operations [0+]: i32 = i32::MIN,
    }
}

message! {
    /// A broker.
    #[derive(Copy)]
    pub struct DescribeClusterBroker<'a> {
        /// Its id.
        broker_id [0+]: i32,
        /// Host name to connect to.
        host [0+]: &'a str,
        /// Port to connect to.
        port [0+]: i32,
        /// Its rack.
        rack [0+]: Option<&'a str>,
        /// Whether it is fenced.
        is_fenced [2+]: bool,
    }
}
