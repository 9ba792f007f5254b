# Fills an empty database: ruby seed.rb FOLDER < tables.json
# Makes FOLDER/template.sqlite3 and FOLDER/storage_state/gitlab.json; the repositories are there already.
require 'json'
require_relative 'boot'

FOLDER = File.expand_path(ARGV.fetch(0))
TABLES = JSON.parse($stdin.read)
SEEDED_AT = Time.utc(2024, 2, 28, 8, 0, 0)

Dir.chdir(FOLDER)
boot_redmine(gems: File.join(FOLDER, 'gems'), state: File.join(FOLDER, 'state'),
             database: File.join(FOLDER, 'template.sqlite3'))

# Salts, tokens and keys come from one generator, so that two templates are equal.
module FixedRandomness
  GENERATOR = Random.new(2024)

  def bytes(count)
    GENERATOR.bytes(count)
  end
  alias gen_random bytes
end
SecureRandom.singleton_class.prepend(FixedRandomness)

def migrate
  ActiveRecord::Migration.verbose = false
  ActiveRecord::Base.connection.execute('PRAGMA synchronous=OFF')
  ActiveRecord::Base.connection.execute('PRAGMA journal_mode=MEMORY')
  ActiveRecord::Migrator.migrations_paths = [File.join(REDMINE, 'db', 'migrate')]
  ActiveRecord::Base.connection.migration_context.migrate
  ActiveRecord::Base.descendants.each(&:reset_column_information)
end

def settings
  Redmine::DefaultData::Loader.load('en')
  {
    app_title: 'Larkspur Works', default_language: 'en', date_format: '%Y-%m-%d', time_format: '%H:%M',
    timespan_format: 'decimal', login_required: '0', self_registration: '0', notified_events: [],
    autofetch_changesets: '0', gravatar_enabled: '0', attachment_max_size: '0', per_page_options: '25,50,100',
    welcome_text: 'The projects of Larkspur Works. Choose one under Projects.', cache_formatted_text: '0',
    session_lifetime: '0', session_timeout: '0', activity_days_default: '30', sys_api_enabled: '0',
    enabled_scm: ['Git'], default_notification_option: 'none', start_of_week: '1'
  }.each { |name, value| Setting[name] = value }
end

def password(user, text)
  user.password = user.password_confirmation = text
  user.must_change_passwd = false
end

def people
  admin = User.find_by(login: 'admin')
  password(admin, TABLES['admin_password'])
  admin.save!
  TABLES['people'].to_h do |row|
    user = User.new(firstname: row['first'], lastname: row['last'], language: 'en',
                    mail: "#{row['login']}@larkspur.example", mail_notification: 'none')
    user.login = row['login']
    user.admin = false
    password(user, TABLES['password'])
    user.save!
    user.pref.update!(time_zone: 'UTC', no_self_notified: '1', auto_watch_on: [])
    [row['login'], user]
  end
end

def project(row, users)
  made = Project.new(name: row['name'], identifier: row['identifier'], description: row['description'])
  made.is_public = true
  made.enabled_module_names = %w[issue_tracking time_tracking news wiki repository calendar gantt]
  made.trackers = Tracker.sorted.to_a
  made.save!
  row['roles'].each { |login, role| Member.create!(project: made, principal: users[login], roles: [Role.find_by!(name: role)]) }
  row['categories'].each { |name| IssueCategory.create!(project: made, name: name) }
  row['versions'].each do |version|
    Version.create!(project: made, name: version['name'], effective_date: version['due'],
                    status: version['status'], description: version['description'])
  end
  made
end

def wiki(projects, users)
  TABLES['wiki'].each do |row|
    EpisodeClock.at(Time.utc(*row['when'].scan(/\d+/).map(&:to_i))) do
      wiki = projects[row['project']].wiki || Wiki.create!(project: projects[row['project']], start_page: 'Wiki')
      page = WikiPage.new(wiki: wiki, title: row['title'])
      page.save_with_content(WikiContent.new(page: page, author: users[row['author']], text: row['text'])) or raise row['title']
    end
  end
end

# Rows of the tables that are large, without callbacks.
class Rows
  def initialize(projects, users)
    @projects = projects
    @users = users
    @ids = Hash.new { |known, model| known[model] = model.pluck(:name, :id).to_h }
    @of_project = Hash.new do |known, (model, project)|
      known[[model, project]] = model.where(project_id: @projects[project].id).pluck(:name, :id).to_h
    end
  end

  def insert
    issues = TABLES['issues']
    Issue.insert_all!(issues.map { |row| issue(row) })
    issues.each_slice(100) { |rows| history(rows) }
    watchers = issues.flat_map { |row| row['watchers'].map { |login| { watchable_type: 'Issue', watchable_id: row['number'], user_id: user(login) } } }
    Watcher.insert_all!(watchers)
    TimeEntry.insert_all!(issues.flat_map { |row| row['time_entries'].map { |entry| time_entry(row, entry) } })
    News.insert_all!(TABLES['news'].map { |row| news(row) })
  end

  private

  def user(login)
    @users.fetch(login).id
  end

  def named(model, name)
    @ids[model].fetch(name)
  end

  def issue(row)
    {
      id: row['number'], project_id: @projects.fetch(row['project']).id, tracker_id: named(Tracker, row['tracker']),
      subject: row['subject'], description: row['description'], status_id: named(IssueStatus, row['status']),
      priority_id: named(IssuePriority, row['priority']),
      category_id: @of_project[[IssueCategory, row['project']]].fetch(row['category']),
      fixed_version_id: row['version'] && @of_project[[Version, row['project']]].fetch(row['version']),
      author_id: user(row['author']), assigned_to_id: row['assignee'] && user(row['assignee']),
      created_on: row['created'], updated_on: row['updated'], closed_on: row['closed_on'], start_date: row['start'],
      due_date: row['due'], done_ratio: row['done'], estimated_hours: row['estimate'], root_id: row['number'],
      lft: 1, rgt: 2, is_private: false, lock_version: 0
    }
  end

  def history(issues)
    issues.each do |row|
      row['changes'].each do |change|
        journal = Journal.insert!({ journalized_id: row['number'], journalized_type: 'Issue', user_id: user(change['author']),
                                    notes: change['note'], created_on: change['when'], private_notes: false })
        next unless change['status']

        before, after = change['status'].map { |name| named(IssueStatus, name).to_s }
        JournalDetail.insert!({ journal_id: Journal.maximum(:id), property: 'attr', prop_key: 'status_id',
                                old_value: before, value: after })
      end
    end
  end

  def time_entry(row, entry)
    day = Date.parse(entry['day'])
    {
      project_id: @projects.fetch(row['project']).id, issue_id: row['number'], user_id: user(entry['user']),
      author_id: user(entry['user']), hours: entry['hours'], comments: entry['comment'],
      activity_id: named(TimeEntryActivity, entry['activity']), spent_on: day, tyear: day.year, tmonth: day.month,
      tweek: day.cweek, created_on: "#{entry['day']} 17:00:00", updated_on: "#{entry['day']} 17:00:00"
    }
  end

  def news(row)
    { project_id: @projects.fetch(row['project']).id, title: row['title'], summary: row['summary'],
      description: row['text'], author_id: user(row['author']), created_on: row['when'], comments_count: 0 }
  end
end

def repositories(projects)
  TABLES['repositories'].each do |identifier|
    repository = Repository::Git.new(project: projects[identifier], identifier: 'main', is_default: true)
    repository.url = "repositories/#{identifier}.git"
    repository.save!
    repository.fetch_changesets
  end
end

# Logs the agent in, as the form does; its session is part of the template.
def storage_state
  ActionController::Base.allow_forgery_protection = false
  form = { username: TABLES['agent'], password: TABLES['password'], back_url: '' }
  response = Rack::MockRequest.new(Rails.application).post('http://127.0.0.1/login', params: form)
  raise "the agent cannot log in: status #{response.status}" unless response.status == 302

  value = response.headers['Set-Cookie'][/redmine_session=([^;]+)/, 1]
  cookie = { name: 'redmine_session', value: value, domain: '127.0.0.1', path: '/', expires: -1,
             httpOnly: true, secure: false, sameSite: 'Lax' }
  FileUtils.mkdir_p('storage_state')
  File.write('storage_state/gitlab.json', JSON.pretty_generate(cookies: [cookie], origins: []))
end

EpisodeClock.at(SEEDED_AT) do
  migrate
  ActiveRecord::Base.transaction do
    settings
    users = people
    User.current = User.find_by(login: 'admin')
    projects = TABLES['projects'].to_h { |row| [row['identifier'], project(row, users)] }
    wiki(projects, users)
    Rows.new(projects, users).insert
    repositories(projects)
  end
  Setting.clear_cache
  storage_state
end
ActiveRecord::Base.connection.execute('VACUUM')
ActiveRecord::Base.remove_connection
FileUtils.rm_rf('state')
