"""What approvals do again and again."""

from approvals import denials, expiry, notifications, teamwork, withdrawals
from workspaces.periodic import SWEEPER, every

every(2, name="approvals.expire", process=SWEEPER)(expiry.expire_due)
every(1, name="approvals.withdraw", process=SWEEPER)(withdrawals.sweep)
every(30, name="approvals.withdraw_old")(withdrawals.sweep_old_forms)
every(30, name="approvals.remind")(expiry.remind_due)
every(5, name="approvals.note_told")(notifications.note_due)
every(10, name="approvals.look_at_teams")(teamwork.sweep)
every(3600, name="approvals.forget_keys")(expiry.forget_old_keys)
every(600, name="approvals.forget_denials")(denials.forget_old)
