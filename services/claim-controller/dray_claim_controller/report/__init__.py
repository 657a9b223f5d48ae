"""What people see of a decision: BindRequest, events, annotation. Off the critical path."""
